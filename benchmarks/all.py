"""make bench: everything, or one part by name (speed, learners, replay, on-policy, policies, hybrids, overhead, cluster, scaling, players, populations)."""

from __future__ import annotations

import argparse

from benchmarks import cluster, hybrids, learners, on_policy, overhead, players, policies, populations, replay, scaling, speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "part",
        nargs="?",
        choices=[
            "speed",
            "learners",
            "replay",
            "on-policy",
            "policies",
            "hybrids",
            "overhead",
            "cluster",
            "scaling",
            "players",
            "populations",
        ],
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each raw or peer measurement")
    parser.add_argument("--env", choices=list(speed.ENVS), help="speed: only this one")
    parser.add_argument("--full", action="store_true", help="populations: 20 rounds beside Ray Tune, and 10 simulated ones")
    parser.add_argument("--rounds", type=int, help="populations: rounds beside Ray Tune; default: 2, or 20 with --full")
    args = parser.parse_args()
    if args.part in (None, "overhead"):
        overhead.main()
    if args.part in (None, "speed"):
        speed.main(args.repeats, args.seconds, args.env)
    if args.part in (None, "learners"):
        learners.main(args.repeats, args.seconds)
    if args.part in (None, "replay"):
        replay.main()
    if args.part in (None, "on-policy"):
        on_policy.main(args.repeats, args.seconds)
    if args.part in (None, "policies"):
        policies.main(args.seconds)
    if args.part in (None, "hybrids"):
        hybrids.main(args.repeats)
    if args.part in (None, "cluster"):
        cluster.main(args.repeats)
    if args.part in (None, "scaling"):
        scaling.main()
    if args.part in (None, "players"):
        players.main(args.repeats)
    if args.part in (None, "populations"):
        populations.main(args.full, args.rounds)


if __name__ == "__main__":
    main()
