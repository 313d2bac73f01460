// Runs in a page before its own scripts: page time that only `advance` moves, random numbers of the seed in the address,
// no dialogs, no animations of style sheets. So a page depends on its seed and on the actions alone.
const mmrl = (() => {
  const NativeDate = Date;
  const START = NativeDate.UTC(2020, 0, 1, 12);
  let now = 0;
  let began = 0; // of the episode
  let last = 0;
  const timers = new Map();

  const add = (call, delay, every) => {
    timers.set(++last, { call, at: now + Math.max(0, Number(delay) || 0), every });
    return last;
  };
  const later = (repeat) => (call, delay, ...rest) =>
    add(typeof call === "function" ? () => call(...rest) : () => (0, eval)(call), delay, repeat ? Math.max(1, delay || 0) : 0);
  const remove = (id) => void timers.delete(id);
  window.setTimeout = later(false);
  window.setInterval = later(true);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;
  window.requestAnimationFrame = (call) => add(() => call(now), 16, 0);
  performance.now = () => now;
  const today = () => START + now - began;
  window.Date = new Proxy(NativeDate, {
    construct: (type, rest, made) => Reflect.construct(type, rest.length ? rest : [today()], made),
    apply: () => new NativeDate(today()).toString(),
    get: (type, key) => (key === "now" ? today : Reflect.get(type, key)),
  });

  let state = 2166136261; // FNV-1a of the seed, then mulberry32
  for (const letter of "mmrl") state = Math.imul(state ^ letter.charCodeAt(0), 16777619);
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  window.alert = window.prompt = () => null;
  window.confirm = () => true;
  window.print = window.open = () => null;
  window.addEventListener("submit", (event) => event.preventDefault(), true);
  document.addEventListener("DOMContentLoaded", () => {
    const style = document.createElement("style");
    style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; scroll-behavior: auto !important; }";
    document.head.appendChild(style);
  });

  // move page time on and run the timers that fall due, in their order
  const advance = async (milliseconds) => {
    const end = now + milliseconds;
    for (;;) {
      let next = null;
      for (const [id, timer] of timers) if (timer.at <= end && (!next || timer.at < next[1].at)) next = [id, timer];
      if (!next) break;
      const [id, timer] = next;
      now = Math.max(now, timer.at);
      if (timer.every) timer.at = now + timer.every;
      else timers.delete(id);
      timer.call();
      await null; // promises that the timer settled
    }
    now = end;
  };

  let own_limit = 10000;
  window.addEventListener("load", () => { own_limit = core.EPISODE_MAX_TIME; });

  // wait until every image in sight is decoded, those of style sheets too
  const painted = async () => {
    const sources = new Set();
    for (const element of document.querySelectorAll("body *")) {
      if (element instanceof HTMLImageElement && element.src) sources.add(element.src);
      for (const found of getComputedStyle(element).backgroundImage.matchAll(/url\("(.*?)"\)/g)) sources.add(found[1]);
    }
    const waits = [...sources].map((source) => {
      const image = new Image();
      image.src = source;
      return image.decode().catch(() => null);
    });
    await Promise.all(waits);
  };

  const report = () => ({
    query: core.getUtterance().utterance || core.getUtterance(),
    done: WOB_DONE_GLOBAL,
    reward: WOB_RAW_REWARD_GLOBAL,
    reason: WOB_REWARD_REASON || null,
    remaining: Math.max(0, core.EPISODE_MAX_TIME - now + began),
  });

  const start = async (seed, limit, settle) => {
    core.endEpisode(0); // of an episode that is still running
    if (document.activeElement) document.activeElement.blur();
    Math.seedrandom(seed);
    began = now;
    core.EPISODE_MAX_TIME = limit || own_limit;
    core.startEpisodeReal();
    await advance(settle);
    for (let tries = 0; !WOB_TASK_READY && tries < 100; tries++) await advance(settle);
    await painted();
    return report();
  };
  const proceed = async (milliseconds) => {
    await advance(milliseconds);
    await painted();
    return report();
  };
  const scroll = (x, y, distance) => {
    let element = document.elementFromPoint(x, y);
    while (element && element !== document.body) {
      const before = element.scrollTop;
      element.scrollTop += distance;
      if (element.scrollTop !== before) return;
      element = element.parentElement;
    }
  };

  // whether a click at a place hits an element, or what is in it
  const hits = (element, x, y) => element.contains(document.elementFromPoint(x, y));

  // the place nearest to the middle of an element where a click hits it, or its middle: another element may cover it
  const distance = ([x, y]) => Math.hypot(x - 0.5, y - 0.5);
  const parts = [0.5, 0.25, 0.75, 0.1, 0.9];
  const spots = parts.flatMap((x) => parts.map((y) => [x, y])).sort((a, b) => distance(a) - distance(b));
  const place = (node, { left, top, width, height }) => {
    const places = spots.map(([x, y]) => [left + x * width, top + y * height]);
    return (node && places.find(([x, y]) => hits(node, x, y))) || places[0];
  };

  // visible elements of the task, those that can be used or that have a text of their own, with their nodes
  const list = () => {
    const found = [];
    const walk = (info) => {
      const own = info.text || (typeof info.value === "string" ? info.value : "");
      if (own || /^(INPUT|BUTTON|TEXTAREA|SELECT|A|CIRCLE|RECT|POLYGON)/i.test(info.tag)) {
        const { tag, focused, value, ref } = info;
        const node = core.previousDOMInfo[ref]; // none for a text
        const [x, y] = place(node, info);
        found.push({ node, tag: tag.toLowerCase(), text: own, x, y, focused: !!focused, checked: value === true });
      }
      info.children.forEach(walk);
    };
    walk(core.getDOMInfo(document.getElementById("wrap")));
    document.querySelectorAll("body > .ui-dialog, body > .ui-menu, body > .ui-datepicker").forEach((extra) => {
      const info = core.getDOMInfo(extra);
      if (info) walk(info);
    });
    return found;
  };
  const elements = () => list().map(({ node, ...shown }) => shown);

  // number of the listed element that is in another one, or -1
  const number = (target) => list().findIndex(({ node }) => node && target.contains(node));

  return { start, proceed, scroll, elements, hits, number, experts: {} };
})();
