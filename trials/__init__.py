"""The trial half: builds a model, starts DeepSpeed, measures a few steps. Knows nothing of Optuna."""
