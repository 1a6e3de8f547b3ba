"""Atari games with the usual preprocessing (Mnih et al. 2015; Machado et al. 2018), through ALE and through EnvPool.

What makes training easier and falsifies the score (clipped rewards, the loss of a life as the end) is switched off in evaluations.
"""

from __future__ import annotations

from typing import Any, Self

import gymnasium as gym
import numpy as np
from pydantic import Field, PositiveInt, field_validator, model_validator

from baldwin.config_base import ConfigModel
from baldwin.errors import missing_extra

ATARI_PREFIX = "ALE/"
MIN_SIDE = 5  # pixels
SCREEN = (210, 160)  # height, width
INCOMPLETE_STATES = frozenset({"qbert", "tetris"})
"""Games of ALE 0.12 that go on differently from a saved state; of all 104 these were found."""


class AtariConfig(ConfigModel):
    """Preprocessing of Atari games. Defaults as for DQN, without sticky actions."""

    frame_skip: PositiveInt = Field(4, description="Frames for which an action is repeated")
    max_frames: bool = Field(True, description="Show the maximum of the last two of them: some sprites flicker")
    grey: bool = Field(True, description="Grey pictures; otherwise RGB")
    size: PositiveInt | list[PositiveInt] | None = Field(84, description="Side in pixels, or [height, width]; null: 210 x 160 as they are")
    crop: list[int] | None = Field(None, description="[top, bottom]: only these of the 210 rows; null: all. Pong is played in [34, 194]")
    stack: int = Field(4, ge=1, le=64, description="Pictures that the policy sees at once")
    sticky: float = Field(0.0, ge=0, lt=1, description="Probability that the last action is repeated (Machado et al. use 0.25)")
    noop_max: int = Field(30, ge=0, description="An episode begins with up to so many random no-ops; 0: none")
    clip_reward: bool = Field(False, description="Rewards are their signs; in training only, scores are always the game's own")
    end_on_life_loss: bool = Field(False, description="The loss of a life ends the episode; in training only")
    ram: bool = Field(False, description="Observe the 128 bytes of memory instead of the picture")
    full_actions: bool = Field(False, description="All 18 actions; otherwise those that the game uses")

    @field_validator("size")
    @classmethod
    def _two_sides(cls, value: Any) -> Any:
        sides = value if isinstance(value, list) else [value or MIN_SIDE]
        if len(sides) > 2 or not sides or min(sides) < MIN_SIDE:
            raise ValueError(f"expected one side or [height, width], each at least {MIN_SIDE} pixels; got {value}")
        return value

    @field_validator("crop")
    @classmethod
    def _rows_of_the_screen(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and not (len(value) == 2 and value[0] >= 0 and value[0] + MIN_SIDE <= value[1] <= SCREEN[0]):
            raise ValueError(f"expected [top, bottom] within 0 and {SCREEN[0]}, at least {MIN_SIDE} rows; got {value}")
        return value

    @model_validator(mode="after")
    def _two_frames_need_a_skip(self) -> Self:
        if self.max_frames and self.frame_skip == 1 and "max_frames" in self.model_fields_set:
            raise ValueError("max_frames needs frame_skip of at least 2")
        return self

    @property
    def rows(self) -> slice:
        """Rows of the screen that are shown; some games have more than 210."""
        return slice(*self.crop) if self.crop else slice(None)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the picture."""
        if self.size is None:
            return len(range(SCREEN[0])[self.rows]), SCREEN[1]
        return (self.size[0], self.size[-1]) if isinstance(self.size, list) else (self.size, self.size)


def ale_id(env_id: str) -> str:
    """Gymnasium's id for a game: EnvPool's has no prefix."""
    return env_id if env_id.startswith(ATARI_PREFIX) else ATARI_PREFIX + env_id


def envpool_id(env_id: str) -> str:
    """EnvPool's id for a game."""
    return env_id.removeprefix(ATARI_PREFIX)


def register_games() -> None:
    """Make ALE's games known to Gymnasium.

    Raises:
        MissingExtra: ALE is not installed.
    """
    try:
        import ale_py
    except ModuleNotFoundError as error:
        raise missing_extra("atari", "Atari games") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for every process
    gym.register_envs(ale_py)


class AtariGame(gym.Wrapper[Any, Any, Any, Any]):
    """A game of ALE that shows every frame (`frameskip=1`), with preprocessing. Observations have their channels first."""

    def __init__(self, env: gym.Env[Any, Any], config: AtariConfig) -> None:
        super().__init__(env)
        self._config, self._lives = config, 0
        self._rng: Any = None  # of no-ops and sticky actions
        self._start: Any = None  # the emulator before the first frame
        self._first_screen: Any = None
        game: Any = env.unwrapped
        self._keeps_state = game._game not in INCOMPLETE_STATES
        self._ale, self._actions = game.ale, game._action_set
        channels = 1 if config.grey else 3
        if config.ram:
            self.observation_space = gym.spaces.Box(0, 255, (128,), np.uint8)
            return
        self._read = self._ale.getScreenGrayscale if config.grey else self._ale.getScreenRGB
        self._screens = [np.empty(self._read().shape, np.uint8) for _ in range(2)]
        self.observation_space = gym.spaces.Box(0, 255, (channels, *config.sides), np.uint8)
        self._resize: Any = None
        if config.sides != self._screens[0][config.rows].shape[:2]:
            try:
                import cv2
            except ModuleNotFoundError as error:
                raise missing_extra("atari", "resizing pictures") from error
            cv2.setNumThreads(1)
            self._resize = lambda picture: cv2.resize(picture, config.sides[::-1], interpolation=cv2.INTER_AREA)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A game with its random number of no-ops."""
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)
        self._restart()
        self._button = self._actions[0]
        for _ in range(int(self._rng.integers(1, self._config.noop_max + 1)) if self._config.noop_max else 0):
            self._ale.act(self._actions[0])
            if not self._config.ram:
                self._read(self._screens[0])
            if self._ale.game_over():
                self._restart()
        self._lives = self._ale.lives()
        if not self._config.ram:
            self._screens[1][...] = self._screens[0]
        return self._observe(), {"lives": self._lives}

    def _restart(self) -> None:
        """Bring the emulator to where it was before the first frame.

        Without sticky actions of its own ALE is deterministic. To load the game again takes as long as 200 steps, so its start is kept, with
        the picture, which is not part of a state.
        """
        if self._start is None:
            self._ale.reset_game()
            self._start = self._ale.cloneSystemState()
            self._first_screen = None if self._config.ram else self._read()
        elif self._keeps_state:
            self._ale.restoreSystemState(self._start)
        else:
            self.env.reset(seed=0)
        if not self._config.ram:
            self._screens[0][...] = self._first_screen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The action for `frame_skip` frames. ALE is asked directly: Gymnasium's step would copy an observation of every frame."""
        config, ale, reward = self._config, self._ale, 0.0
        chosen = self._actions[int(action)]
        for left in range(config.frame_skip - 1, -1, -1):
            if not config.sticky or self._rng.random() >= config.sticky:  # Machado et al. 2018: decided for every frame
                self._button = chosen
            reward += ale.act(self._button)
            if not config.ram and left < (2 if config.max_frames else 1):
                self._read(self._screens[left])
            if ale.game_over():
                break
        terminated, truncated = ale.game_over(with_truncation=False), ale.game_truncated()
        if config.end_on_life_loss and ale.lives() < self._lives:
            terminated = True
        self._lives = ale.lives()
        return self._observe(), float(np.sign(reward)) if config.clip_reward else reward, terminated, truncated, {"lives": self._lives}

    def _observe(self) -> Any:
        if self._config.ram:
            return self._ale.getRAM()
        newest, before = self._screens
        picture = np.maximum(newest, before) if self._config.max_frames and self._config.frame_skip > 1 else newest
        picture = picture[self._config.rows]
        picture = self._resize(picture) if self._resize else picture
        return picture[None] if self._config.grey else picture.transpose(2, 0, 1)


def ale_kwargs(config: AtariConfig) -> dict[str, Any]:
    """Arguments of ALE's Gymnasium environment: single frames, without sound or pictures that nobody looks at."""
    return {
        "obs_type": "ram",  # the wrapper reads the screen itself, and only the frames that are shown
        "frameskip": 1,
        "repeat_action_probability": 0.0,  # the wrapper repeats
        "full_action_space": config.full_actions,
    }


def envpool_kwargs(config: AtariConfig) -> dict[str, Any]:
    """The same preprocessing in EnvPool's words; it always shows the maximum of two frames.

    Raises:
        ValueError: EnvPool cannot do it.
    """
    if config.ram or config.size is None or config.crop or not config.max_frames:
        raise ValueError(
            "EnvPool shows neither RAM nor pictures of the original size or cropped nor single frames. Use env.backend=gymnasium"
        )
    return {
        "stack_num": 1,  # the rollout stacks, so that the replay buffer can store each frame once
        "frame_skip": config.frame_skip,
        "gray_scale": config.grey,
        "img_height": config.sides[0],
        "img_width": config.sides[1],
        "noop_max": max(1, config.noop_max),
        "use_fire_reset": False,
        "episodic_life": config.end_on_life_loss,
        "reward_clip": config.clip_reward,
        "repeat_action_probability": config.sticky,
        "full_action_space": config.full_actions,
    }
