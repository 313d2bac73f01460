// The next action of an expert by page: {click: element} or {type: text}. It reads the document, as only an expert may.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const query = () => core.getUtterance().utterance || core.getUtterance();
  const quoted = () => /"(.*)"/.exec(query())[1];
  const text = (element) => element.textContent.trim();
  const labelled = (selector, wanted) => all(selector).find((element) => text(element) === wanted);
  const names = (pattern) => pattern.exec(query())[1].split(/, /);

  Object.assign(mmrl.experts, {
    "click-test": () => ({ click: one("#subbtn") }),
    "click-test-2": () => ({ click: one("#subbtn") }),
    "click-button": () => ({ click: labelled("#area button", quoted()) }),
    "click-color": () => ({ click: one(`#area .color[data-color="${/the (\w+) colored/.exec(query())[1]}"]`) }),
    "click-dialog": () => ({ click: one(".ui-dialog-titlebar button") }),
    "click-dialog-2": () => ({
      click: quoted() === "x" ? one(".ui-dialog-titlebar button") : labelled(".ui-dialog-buttonset button", quoted()),
    }),
    "click-link": () => ({ click: labelled(".alink", quoted()) }),
    "click-tab": () => ({ click: labelled("#area ul a", /Tab #\d/.exec(query())[0]) }),
    "click-widget": () => ({ click: one(`[data-type="${quoted()}"]`) }),
    "focus-text": () => ({ click: one("#area input") }),
    "focus-text-2": () => ({ click: all("#area input")[Number(/\d/.exec(query())[0]) - 1] }),
    "grid-coordinate": () => ({ click: document.getElementById(/\(.*\)/.exec(query())[0]) }),
    "click-checkboxes": () => {
      const wanted = names(/^Select (.*) and click/);
      const open = all("#boxes label").find((label) => wanted.includes(text(label)) && !label.querySelector("input").checked);
      return { click: open ? open.querySelector("input") : one("#subbtn") };
    },
    "enter-text": () => {
      const field = one("#tt");
      if (field.value === quoted()) return { click: one("#subbtn") };
      return document.activeElement === field ? { type: quoted() } : { click: field };
    },
  });

  // middle of the cell nearest to the middle of the element in which a click hits it
  const aim = (element, columns, rows, top) => {
    const { left, top: upper, width, height } = element.getBoundingClientRect();
    const cell = [160 / columns, (210 - top) / rows];
    const clamp = (value, count) => Math.min(count - 1, Math.max(0, Math.floor(value)));
    let best = null;
    for (let row = clamp((upper - top) / cell[1], rows); row <= clamp((upper + height - top) / cell[1], rows); row++) {
      for (let column = clamp(left / cell[0], columns); column <= clamp((left + width) / cell[0], columns); column++) {
        const [x, y] = [(column + 0.5) * cell[0], top + (row + 0.5) * cell[1]];
        const missed = mmrl.hits(element, x, y) ? 0 : 1e6;
        const distance = missed + Math.hypot(x - left - width / 2, y - upper - height / 2);
        if (!best || distance < best.distance) best = { column, row, distance };
      }
    }
    return { column: best.column, row: best.row };
  };

  mmrl.expert = (page, columns, rows, top) => {
    if (!mmrl.experts[page]) return null;
    const { click, type } = mmrl.experts[page]();
    return click ? { ...aim(click, columns, rows, top), element: mmrl.number(click) } : { type };
  };
})();
