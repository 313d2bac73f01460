document.querySelectorAll("video").forEach(video => video.addEventListener("click", () => video.paused ? video.play() : video.pause()));
document.querySelectorAll("table.sortable th").forEach(head => head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex, down = head.dataset.down === "1";
  head.dataset.down = down ? "0" : "1";
  const key = row => row.cells[at].textContent.trim();
  const order = (a, b) => key(a) !== "" && key(b) !== "" && !isNaN(key(a)) && !isNaN(key(b)) ? key(a) - key(b) : key(a).localeCompare(key(b));
  [...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)).forEach(row => body.append(row));
}));
