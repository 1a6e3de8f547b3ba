// Pong in the browser as a live world: it connects to workers of `baldwin train`, which play one side and learn from it.
// Rules and observations are those of baldwin/envs/pong.py, messages those of baldwin/envs/live_protocol.py.
"use strict";

const options = new URLSearchParams(location.search);
const PORT = Number(options.get("port") ?? 8765); // of the first worker; the others listen at the next ports
const WORKERS = Number(options.get("workers") ?? 1);
const ROUNDS = Number(options.get("rounds") ?? 5); // of a match
const TOKEN = options.get("token") ?? "";
const FRAME_MS = 1000 / 60, MAX_FRAMES = 6; // frames that are made up for at once; a page that slept longer goes on from there
const MAX_UNSENT = 4096; // bytes on their way to a worker that does not read: above it, turns are joined
const RETRY_MS = 500, USER_MS = 5000;

const SIZE = 160, BAT_WIDTH = 5, BAT_HEIGHT = 15, BAT_SPEED = 4, BAT_MARGIN = 16, BALL = 4;
const SPEED_X = 4, MIN_SPEED_Y = 1.2, MAX_START_SPEED_Y = 4, MAX_SPEED_Y = 8, BAT_PUSH = 0.7, ROUND_FRAMES = 1000;
const SIDES = ["left", "right"], UP = 0, STOP = 1, DOWN = 2;
const PLAYERS = SIDES.map((name) => ({name, observation: {shape: [10], low: -0.1, high: 1.1}, actions: 3, rewards: ["reward"]}));

const clip = (value, low, high) => Math.min(high, Math.max(low, value));

/** Numbers in [0, 1) that depend on the seed alone (mulberry32). */
function makeRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Pong {
  constructor(seed) {
    this.random = makeRandom(seed);
    this.bats = [(SIZE - BAT_HEIGHT) / 2, (SIZE - BAT_HEIGHT) / 2]; // upper edges
    this.score = [0, 0];
    this.round = 0;
    this.serve();
  }

  get over() { return this.round >= ROUNDS; }

  serve() {
    const middle = (SIZE - BALL) / 2, speed = MIN_SPEED_Y + (MAX_START_SPEED_Y - MIN_SPEED_Y) * this.random();
    this.ball = [middle, middle]; // upper left corner
    this.velocity = [this.random() < 0.5 ? -SPEED_X : SPEED_X, this.random() < 0.5 ? -speed : speed];
    this.trail = Array.from({length: 4}, () => [middle, middle]); // the newest first
    this.frames = 0;
  }

  /** One frame with both players' actions; the rewards of both. */
  frame(actions) {
    const moved = this.bats.map((bat, side) => clip(bat + (actions[side] - STOP) * BAT_SPEED, 0, SIZE - BAT_HEIGHT));
    const moves = moved.map((bat, side) => bat - this.bats[side]), before = this.ball;
    this.bats = moved;
    this.ball = [before[0] + this.velocity[0], before[1] + this.velocity[1]];
    const low = SIZE - BALL, y = this.ball[1];
    if (y < 0 || y > low) {
      this.ball[1] = y < 0 ? -y : 2 * low - y;
      this.velocity[1] *= -1;
    }
    this.bounce(0, before[0], this.ball[0], BAT_MARGIN + BAT_WIDTH, moves[0]);
    this.bounce(1, before[0] + BALL, this.ball[0] + BALL, SIZE - BAT_MARGIN - BAT_WIDTH, moves[1]);
    this.trail = [[...this.ball], ...this.trail.slice(0, 3)];
    const outLeft = this.ball[0] + BALL < 0, outRight = this.ball[0] > SIZE;
    this.score[0] += outRight;
    this.score[1] += outLeft;
    this.frames += 1;
    if (outLeft || outRight || this.frames >= ROUND_FRAMES) {
      this.round += 1;
      this.serve();
    }
    return outRight ? [1, -1] : outLeft ? [-1, 1] : [0, 0];
  }

  /** Send the ball back where its front edge crosses that of the bat in this frame. */
  bounce(side, oldEdge, edge, front, move) {
    const crosses = side === 0 ? oldEdge >= front && edge < front : oldEdge <= front && edge > front;
    if (!crosses || this.ball[1] + BALL <= this.bats[side] || this.ball[1] >= this.bats[side] + BAT_HEIGHT) return;
    this.ball[0] += 2 * (front - edge);
    this.velocity[0] *= -1;
    this.velocity[1] = clip(this.velocity[1] + BAT_PUSH * move, -MAX_SPEED_Y, MAX_SPEED_Y);
  }

  /** Both bats and the ball in the last four frames; the right-hand player sees itself on the left, too. */
  observe(side) {
    const bat = (n) => this.bats[n] / (SIZE - BAT_HEIGHT), scale = SIZE - BALL;
    return [bat(side), bat(1 - side), ...this.trail.flatMap(([x, y]) => [side ? 1 - x / scale : x / scale, y / scale])];
  }

  /** The scripted player, which follows the ball. */
  track(side) { return this.ball[1] + BALL / 2 < this.bats[side] + BAT_HEIGHT / 2 ? UP : DOWN; }

  result(side) {
    const [own, other] = side ? [this.score[1], this.score[0]] : this.score;
    return {score: (own - other + ROUNDS) / (2 * ROUNDS), win: (Math.sign(own - other) + 1) / 2, points: [own, other]};
  }
}

/** A game whose sides `players` are played over a connection. */
class Match {
  constructor(socket, seed, players) {
    this.socket = socket;
    this.game = new Pong(seed);
    this.remote = new Map(players.map((name) => [name, {action: STOP, turn: 0, reward: 0, elapsed: 0}]));
    this.show();
  }

  isRemote(side) { return this.remote.has(SIDES[side]); }

  /** Actions may come at any time; until then, the last one holds. */
  take(message) {
    const player = this.remote.get(message.player);
    if (message.type !== "act" || !player || ![UP, STOP, DOWN].includes(message.action)) return;
    player.action = message.action;
    page.decisions += 1;
  }

  /** One frame; `user` is the action of whoever sits at the keyboard, or null. */
  frame(user) {
    const actions = SIDES.map((name, side) => this.remote.get(name)?.action ?? user ?? this.game.track(side));
    const rewards = this.game.frame(actions);
    for (const [name, player] of this.remote) {
      player.reward += rewards[SIDES.indexOf(name)];
      player.elapsed += 1;
    }
    this.show();
  }

  show() {
    const over = this.game.over;
    if (!over && this.socket.bufferedAmount > MAX_UNSENT) return;
    for (const [name, player] of this.remote) {
      const side = SIDES.indexOf(name);
      this.socket.send(JSON.stringify({
        type: "turn", player: name, turn: player.turn++, observation: this.game.observe(side), reward: [player.reward],
        elapsed: player.elapsed, terminated: over, result: over ? this.game.result(side) : {},
      }));
      Object.assign(player, {reward: 0, elapsed: 0});
    }
  }
}

const page = {matches: [], decisions: 0, frames: 0, reason: "", keys: new Set(), lastKey: -Infinity}; // all that changes

/** Offer one match; the next one when it has begun, or when the connection is gone before. */
function offer(url) {
  const socket = new WebSocket(url);
  let match = null;
  socket.onopen = () => socket.send(JSON.stringify({type: "offer", version: 1, token: TOKEN, players: PLAYERS}));
  socket.onmessage = ({data}) => {
    const message = JSON.parse(data);
    if (match) {
      match.take(message);
    } else if (message.type === "begin") {
      match = new Match(socket, message.seed, message.players);
      page.matches.push(match);
      offer(url);
    } else {
      page.reason = `the worker refused: ${message.reason}`;
    }
  };
  socket.onclose = () => {
    page.matches = page.matches.filter((other) => other !== match);
    if (!match) setTimeout(offer, RETRY_MS, url);
  };
}

const isUp = () => page.keys.has("ArrowUp") || page.keys.has("w");
const isDown = () => page.keys.has("ArrowDown") || page.keys.has("s");
const userPlays = () => page.keys.size > 0 || performance.now() - page.lastKey < USER_MS;
const userAction = () => (userPlays() ? STOP + isDown() - isUp() : null);

const running = () => page.matches.filter((match) => !match.game.over && match.socket.readyState === WebSocket.OPEN);

let clock = performance.now();
/** All frames that are due, of all matches; the oldest one is on the screen. */
function advance() {
  const now = performance.now();
  if (now - clock > MAX_FRAMES * FRAME_MS) clock = now - FRAME_MS;
  for (; now - clock > FRAME_MS - 2; clock += FRAME_MS) { // screens are not exact to the millisecond
    running().forEach((match, n) => match.frame(n === 0 ? userAction() : null));
    page.frames += 1;
  }
}

const canvas = document.getElementById("arena"), context = canvas.getContext("2d");
const COLORS = ["#d5824a", "#5cba5c"];

function draw() {
  const [shown] = running();
  context.setTransform(canvas.width / SIZE, 0, 0, canvas.height / SIZE, 0, 0);
  context.fillStyle = "#283c28";
  context.fillRect(0, 0, SIZE, SIZE);
  if (!shown) return;
  const {bats, ball, score} = shown.game;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  [BAT_MARGIN, SIZE - BAT_MARGIN - BAT_WIDTH].forEach((x, side) => {
    context.fillStyle = COLORS[side];
    context.fillRect(x, bats[side], BAT_WIDTH, BAT_HEIGHT);
    context.fillText(String(score[side]), SIZE / 2 + (side ? 20 : -20), 16);
  });
  context.fillStyle = "#ececec";
  context.fillRect(ball[0], ball[1], BALL, BALL);
  const name = (side) => `${SIDES[side]}: ${shown.isRemote(side) ? "the policy" : userPlays() ? "you" : "the script"}`;
  document.getElementById("players").textContent = `${name(0)}  —  ${name(1)}`;
}

function everyScreenFrame() {
  advance();
  draw();
  requestAnimationFrame(everyScreenFrame);
}

// A hidden page gets no screen frames and slow timers; those of a worker go on.
const ticks = `setInterval(() => postMessage(0), ${FRAME_MS})`;
new Worker(URL.createObjectURL(new Blob([ticks]))).onmessage = () => { if (document.hidden) advance(); };

let counted = 0;
setInterval(() => {
  const rate = page.decisions - counted;
  counted = page.decisions;
  document.getElementById("status").textContent =
    page.reason || `${page.matches.length} matches, ${rate} decisions of the policy in the last second, ${page.decisions} in all`;
}, 1000);

function onKey(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!["ArrowUp", "ArrowDown", "w", "s"].includes(key)) return;
  event.preventDefault();
  page.lastKey = performance.now();
  if (event.type === "keydown") page.keys.add(key);
  else page.keys.delete(key);
}
addEventListener("keydown", onKey);
addEventListener("keyup", onKey);
addEventListener("blur", () => page.keys.clear());

for (let n = 0; n < WORKERS; n++) offer(`ws://127.0.0.1:${PORT + n}`);
requestAnimationFrame(everyScreenFrame);
