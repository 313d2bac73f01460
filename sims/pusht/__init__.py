"""The PushT task of the package gym-pusht, with an expert that plans strokes in a copy of its physics."""
