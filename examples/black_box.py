"""A strategy alone: minimise any function of a vector by ask and tell."""

import numpy as np

from baldwin.strategies import ESConfig, OpenAIES
from baldwin.types import Outcome


def main(generations: int = 200) -> float:
    goal = np.linspace(-2, 2, 8)
    strategy = OpenAIES(np.zeros(8, np.float32), ESConfig(population=32, sigma=0.1, lr=0.05, weight_decay=0.0), seed=1)
    while strategy.version < generations:
        outcomes = []
        for trial in strategy.ask(1000):
            recipe = trial.params
            x = strategy.center + recipe.scale * recipe.noise.draw(recipe.generation, recipe.pair)
            outcomes.append(Outcome(trial.id, -float(np.square(x - goal).sum())))
        strategy.tell(outcomes)
    distance = float(np.abs(strategy.center - goal).max())
    print(f"furthest coordinate is {distance:.3f} from its goal")
    return distance


if __name__ == "__main__":
    main()
