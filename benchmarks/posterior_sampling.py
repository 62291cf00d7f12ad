"""Time and convergence of NUTS on ElementWorld with three intents.

python -m benchmarks.posterior_sampling            # 4 x 1,000 draws in two processes
python -m benchmarks.posterior_sampling --serial   # in this process
"""

import argparse
import time
import warnings

import numpy as np

import limiirl as ll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serial", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=500)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ll.errors.ModelMismatchWarning)
    world = ll.worlds.ElementWorld(n_elements=3, wind=0.1, height=6, gamma=0.99, seed=arguments.seed)
    demos, _ = world.sample(100, seed=1)
    mix = ll.IntentMixture(3, ll.MaxEnt(), max_iter=400, random_state=0).fit(world.mdp, demos)
    executor = None if arguments.serial else ll.executors.Executor("local", workers=2)
    begin, cpu = time.perf_counter(), time.process_time()
    samples = mix.sample_posterior(draws=arguments.draws, tune=arguments.tune, seed=0, executor=executor)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    with_variance = (
        np.ptp(np.concatenate([samples.weights, samples.thetas.reshape(*samples.weights.shape[:2], -1)], 2), (0, 1)) > 0
    )
    print(f"wall {wall:.1f} s, CPU of this process {cpu:.1f} s")
    print(
        f"largest R-hat {samples.r_hat[with_variance].max():.4f}, smallest ESS {samples.ess[with_variance].min():.0f}"
    )
    print(f"divergences {samples.diverging.sum()} of {samples.diverging.size}, relabelled {samples.relabelled.sum()}")


if __name__ == "__main__":
    main()
