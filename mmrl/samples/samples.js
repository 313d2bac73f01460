"use strict";
for (const root of document.querySelectorAll("[data-samples]")) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const step = 40;
  const make = (name, kind, text) => {
    const node = document.createElement(name);
    if (kind) node.className = kind;
    if (text !== undefined && text !== null) node.textContent = text;
    return node;
  };
  const at = (values, i) => Array.isArray(values) ? values[i] : values;
  const number = value => value === null || value === undefined ? "none" : String(Number(value.toPrecision(4)));

  const ways = {
    advantage: turn => turn.advantages === undefined ? null : i => {
      const value = at(turn.advantages, i);
      const strength = Math.min(Math.abs(value || 0) / 2, 1) * 0.6;
      return value ? `rgba(${value > 0 ? "34,136,51" : "204,51,17"},${(0.12 + strength).toFixed(2)})` : "";
    },
    probability: turn => turn.logprobs === undefined ? null : i => {
      const value = Math.exp(at(turn.logprobs, i) || 0);
      return value < 0.995 ? `rgba(68,119,170,${((1 - value) * 0.7).toFixed(2)})` : "";
    },
    ratio: turn => turn.ratios === undefined ? null : i => {
      const value = Math.log(Math.max(at(turn.ratios, i) || 1, 1e-6));
      const strength = Math.min(Math.abs(value) / 0.3, 1) * 0.7;
      return strength > 0.01 ? `rgba(${value > 0 ? "238,153,51" : "136,85,170"},${strength.toFixed(2)})` : "";
    },
    none: () => null,
  };
  const known = name => data.groups.some(group => group.sides.some(side => side.some(
    episode => (episode.turns || []).some(turn => ways[name](turn) !== null))));

  const bar = make("div", "samples-bar");
  const choose = (label, options, start) => {
    const box = make("label", "", label + " "), select = make("select");
    for (const option of options) select.append(new Option(option, option, option === start, option === start));
    box.append(select);
    bar.append(box);
    select.addEventListener("change", () => draw(step));
    return select;
  };
  const colours = ["advantage", "probability", "ratio"].filter(known);
  const show = choose("show", ["all", "failures", "successes", "errors", "changed"].slice(0, data.titles.length > 1 ? 5 : 4), data.start);
  const sort = choose("sort by", ["order", "reward", "length", "spread"], "order");
  const colour = choose("colour by", [...colours, "none"], colours[0] || "none");
  const search = make("input");
  search.placeholder = "search";
  search.addEventListener("input", () => draw(step));
  const count = make("span", "soft");
  bar.append(search, count);
  const list = make("div");
  root.append(bar, list);

  const last = group => group.sides[group.sides.length - 1];
  const mean = (group, value) => last(group).reduce((sum, episode) => sum + (value(episode) || 0), 0) / Math.max(last(group).length, 1);
  const spread = group => { const all = last(group).map(e => e.reward || 0); return Math.min(...all) - Math.max(...all); };
  const orders = {
    order: () => 0,
    reward: (a, b) => mean(a, e => e.reward) - mean(b, e => e.reward),
    length: (a, b) => mean(b, e => e.length) - mean(a, e => e.length),
    spread: (a, b) => spread(a) - spread(b),
  };
  const kinds = { failures: ["failure", "error"], successes: ["success"], errors: ["error"] };
  const shown = episode => show.value in kinds ? kinds[show.value].includes(episode.kind) : true;
  const changed = group => JSON.stringify(group.sides[0].map(e => e.kind)) !== JSON.stringify(last(group).map(e => e.kind));
  const wanted = group => show.value === "changed" ? changed(group) : last(group).some(shown);

  const tokens = turn => {
    const box = make("pre"), paint = ways[colour.value](turn);
    if (turn.context) box.append(make("span", "forced", turn.context));
    turn.tokens.forEach((text, i) => {
      if (turn.omitted && turn.omitted.after === i) box.append(make("span", "soft", ` [... ${turn.omitted.tokens} tokens ...] `));
      const chosen = turn.chosen === undefined || turn.chosen[i];
      const node = make("span", chosen ? "" : "forced", text);
      if (chosen && paint) node.style.background = paint(i);
      const facts = ["logprobs", "advantages", "ratios"].filter(name => turn[name] !== undefined);
      if (chosen && facts.length) node.title = facts.map(name => `${name.slice(0, -1)} ${number(at(turn[name], i))}`).join(", ");
      box.append(node);
    });
    return box;
  };
  const episodeNode = episode => {
    const box = make("div", `episode ${episode.kind}`), line = make("div", "numbers");
    line.append(make("b", episode.kind, episode.outcome || episode.kind), ` · reward ${number(episode.reward)}`);
    if (episode.advantage !== null) line.append(` · advantage ${number(episode.advantage)}`);
    for (const [name, value] of Object.entries(episode.scores)) line.append(` · ${name} ${number(value)}`);
    line.append(` · ${episode.length} ${episode.unit} · ${episode.ended}`);
    for (const [name, value] of Object.entries(episode.facts)) line.append(` · ${name} `, make("b", "", value));
    box.append(line);
    for (const turn of episode.turns || []) box.append(tokens(turn));
    if (!(episode.turns || []).length && episode.output !== undefined) box.append(make("pre", "", episode.output));
    for (const call of episode.calls || []) box.append(make("pre", "call", `${call.name}(${call.arguments}) ${call.outcome}: ${call.result}`));
    return box;
  };
  const groupNode = group => {
    const box = make("div", "sample"), prompt = make("div", "prompt"), text = make("div");
    box.append(make("div", "head", `#${group.number} ${group.key}`));
    for (const uri of group.images) {
      if (!uri.startsWith("data:image/")) continue;
      const image = make("img");
      image.alt = "image of the prompt";
      image.src = uri;
      prompt.append(image);
    }
    for (const message of group.messages) {
      const line = make("pre");
      line.append(make("span", "role", `${message.role}: `), message.text);
      text.append(line);
    }
    if (group.answer !== null) {
      const right = make("div", "right", "right answer: ");
      right.append(make("b", "", group.answer));
      text.append(right);
    }
    prompt.append(text);
    const sides = make("div", "sides");
    group.sides.forEach((side, i) => {
      const column = make("div");
      if (data.titles.length > 1) column.append(make("h4", "", data.titles[i]));
      const visible = data.titles.length > 1 ? side : side.filter(shown);
      column.append(...visible.map(episodeNode));
      const left = group.sizes[i] - visible.length;
      if (left > 0) column.append(make("div", "soft", `${left} more`));
      sides.append(column);
    });
    box.append(prompt, sides);
    return box;
  };
  const draw = limit => {
    const word = search.value.toLowerCase();
    const found = data.groups.filter(group => wanted(group) && (!word || group.words.includes(word)));
    const ordered = found.map((group, i) => [group, i]).sort((a, b) => orders[sort.value](a[0], b[0]) || a[1] - b[1]).map(pair => pair[0]);
    list.replaceChildren(...ordered.slice(0, limit).map(groupNode));
    count.textContent = `${found.length} of ${data.groups.length} prompts` + (data.left ? `, ${data.left} more are in the file of samples` : "");
    if (found.length > limit) {
      const more = make("button", "more", `show ${Math.min(step, found.length - limit)} more`);
      more.addEventListener("click", () => draw(limit + step));
      list.append(more);
    }
  };
  for (const group of data.groups) {
    group.words = JSON.stringify([group.key, group.messages, group.answer, group.sides.map(side => side.map(e => e.output))]).toLowerCase();
  }
  draw(step);
}
