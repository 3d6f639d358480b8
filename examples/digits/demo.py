"""Tune a small neural network on this computer, to a deadline and a budget: `make demo`."""

from __future__ import annotations

from train import train

import elastune as et


def main() -> None:
    tuner = et.Tuner(
        train,
        space={
            "lr": et.loguniform(1e-4, 1.0),
            "momentum": et.uniform(0.0, 0.99),
            "hidden": et.choice([16, 32, 64, 128]),
            "batch_size": et.choice([16, 32, 64, 128]),
            "weight_decay": et.loguniform(1e-6, 1e-2),
        },
        metric="accuracy",
        mode="max",
        algorithm=et.ASHA(n=40, r=1, R=27, eta=3),
        deadline="100s",
        budget="$0.05",
        price="$0.10",  # per device and hour
        seed=0,
        devices=2,
        name="digits",
    )
    result = tuner.fit()
    print(result.summary())
    print(f"best accuracy {result.best_value:.3f} with {result.best_params}")
    for path in result.save_plots():
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
