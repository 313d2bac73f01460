"""Results of runs: tables of sweeps, comparisons over seeds, and facts for model cards."""
