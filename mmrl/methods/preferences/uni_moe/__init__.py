"""Uni-MoE 2.0: a mixture of routed, null and shared experts with dynamic routing, as a policy that writes text.

Uni-MoE-2.0-Omni: Scaling Language-Centric Omnimodal Large Model with Advanced MoE, Training and Data, 2025,
arXiv:2511.12609.

More than 150 lines, since transformers has no layer with null experts: a layer, a model and a policy.
"""
