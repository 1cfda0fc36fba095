"use strict";
(() => {
  const root = document.documentElement, tip = document.getElementById("tip");

  // Dark or light: as the system has it, until somebody decides.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  root.classList.toggle("dark", dark.matches);
  document.getElementById("theme").addEventListener("click", () => root.classList.toggle("dark"));

  // Everything that belongs to a kernel lights up together: lines, boxes, dots, rows.
  const byKernel = new Map();
  for (const element of document.querySelectorAll("[data-k]")) {
    for (const k of element.dataset.k.split(" ")) {
      if (!k) continue;
      if (!byKernel.has(k)) byKernel.set(k, []);
      byKernel.get(k).push(element);
    }
  }
  let lit = [], pinned = null;
  const light = (element) => {
    for (const x of lit) x.classList.remove("hot");
    lit = [];
    const keys = element ? element.dataset.k.split(" ").filter(Boolean) : [];
    for (const k of keys) for (const x of byKernel.get(k) || []) lit.push(x);
    for (const x of lit) x.classList.add("hot");
    document.body.classList.toggle("picking", keys.length > 0);
  };
  document.addEventListener("mouseover", (event) => {
    const element = event.target.closest("[data-k]");
    if (!pinned || element) light(element || pinned);
  });
  document.addEventListener("click", (event) => {
    const line = event.target.closest(".line.k");
    if (!line) return;
    if (pinned) pinned.classList.remove("pinned");
    pinned = pinned === line ? null : line;
    if (pinned) pinned.classList.add("pinned");
    light(pinned);
  });

  // What the mouse is over, in words.
  document.addEventListener("mousemove", (event) => {
    const element = event.target.closest("[data-tip]");
    tip.hidden = !element;
    if (!element) return;
    tip.textContent = element.dataset.tip;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(x, 4)}px`;
    tip.style.top = `${below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 10}px`;
  });

  // The table of kernels: a row opens, a head sorts.
  const table = document.getElementById("kernels");
  if (!table) return;
  table.addEventListener("click", (event) => {
    const head = event.target.closest("th"), row = event.target.closest("tr.k");
    if (row) row.nextElementSibling.hidden = !row.nextElementSibling.hidden;
    if (!head) return;
    const column = [...head.parentElement.children].indexOf(head);
    const value = (body) => {
      const cell = body.rows[0].cells[column];
      return cell.dataset.v === undefined ? cell.textContent : cell.dataset.v;
    };
    const up = head.dataset.order !== "up" && column < 3;
    head.dataset.order = up ? "up" : "down";
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return (up ? 1 : -1) * (numbers ? x - y : x.localeCompare(y));
    };
    table.append(...[...table.tBodies].sort(order));
  });
})();
