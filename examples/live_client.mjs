// A live world in JavaScript that connects to a worker. `live_client.py` is the same in Python; the messages are in baldwin/envs/live_protocol.py.
//
//   baldwin train --algo ppo --env live:listen://127.0.0.1:8765 -m executor.workers=1 algorithm.actor_lag=1 &
//   node examples/live_client.mjs ws://127.0.0.1:8765 [frames a second] [token]     (Node 20: node --experimental-websocket ...)
//
// Several workers listen at ports one after the other: give all addresses, separated by commas.

const [urls = "ws://127.0.0.1:8765", rate = "60", token = ""] = process.argv.slice(2);
const RETRY_MS = 500;
const BALLS = 10, FALL = 0.02, MOVE = 0.03, REACH = 0.1;
const PLAYERS = [{name: "catcher", observation: {shape: [3], low: 0, high: 1}, actions: 3, rewards: ["reward"]}];

if (typeof WebSocket === "undefined") {
  console.error("this needs the WebSocket of Node 22 or newer; with Node 20, run: node --experimental-websocket examples/live_client.mjs");
  process.exit(2);
}

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

/** Balls fall, and a catcher at the bottom moves left (0), not at all (1) or right (2). */
class Catch {
  constructor(seed) {
    this.random = makeRandom(seed);
    Object.assign(this, {catcher: 0.5, x: this.random(), y: 1, balls: 0, caught: 0});
  }

  /** One frame; returns its reward. */
  frame(action) {
    this.catcher = Math.min(1, Math.max(0, this.catcher + MOVE * (action - 1)));
    this.y -= FALL;
    if (this.y > 0) return 0;
    const caught = Math.abs(this.x - this.catcher) < REACH;
    this.balls += 1;
    this.caught += caught;
    this.x = this.random();
    this.y = 1;
    return caught ? 1 : -1;
  }

  get over() { return this.balls === BALLS; }
  get observation() { return [this.catcher, this.x, Math.max(0, this.y)]; }
}

/** Play one match. The world never waits: until an action comes, the last one holds. */
function play(socket, seed) {
  const game = new Catch(seed), start = performance.now();
  let action = 1, turn = 0, frames = 0;
  const show = (reward) => socket.send(JSON.stringify({
    type: "turn", player: "catcher", turn: turn++, observation: game.observation, reward: [reward], elapsed: 1,
    terminated: game.over, result: game.over ? {score: game.caught / BALLS} : {},
  }));
  socket.onmessage = ({data}) => {
    const message = JSON.parse(data);
    if (message.type === "act" && [0, 1, 2].includes(message.action)) action = message.action;
  };
  const advance = () => {
    if (socket.readyState !== WebSocket.OPEN) return;
    show(game.frame(action));
    if (game.over) console.log(JSON.stringify({score: game.caught / BALLS, frames}));
    else setTimeout(advance, start + (++frames * 1000) / rate - performance.now());
  };
  show(0);
  advance();
}

/** Offer one match; the next one when it has begun, or when the connection is gone before. */
function offer(url) {
  const socket = new WebSocket(url);
  let begun = false;
  socket.onopen = () => socket.send(JSON.stringify({type: "offer", version: 1, token, players: PLAYERS}));
  socket.onmessage = ({data}) => {
    const message = JSON.parse(data);
    if (message.type === "error") {
      console.error(`the worker refused: ${message.reason}`);
      process.exit(1);
    }
    begun = true;
    play(socket, message.seed);
    offer(url);
  };
  socket.onerror = () => {}; // a worker that does not listen yet: onclose tries again
  socket.onclose = () => { if (!begun) setTimeout(offer, RETRY_MS, url); };
}

urls.split(",").forEach(offer);
