// Finds sections that have every word of the query. The index is a script, so that it works from a folder without a server.
"use strict";
const home = document.currentScript.dataset.home;
const input = document.getElementById("search");
const found = document.getElementById("found");
const SHOWN = 20;

function load() {
  input.removeEventListener("focus", load);
  const script = document.createElement("script");
  script.src = `${home}/search-index.js`;
  script.onload = search;
  document.head.append(script);
}

// Words of a heading count more than words of the text.
function score(entry, words) {
  const heading = `${entry.p} ${entry.h}`.toLowerCase();
  const text = entry.t.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const here = (heading.includes(word) ? 10 : 0) + Math.min(text.split(word).length - 1, 5);
    if (here === 0) return 0;
    sum += here;
  }
  return sum;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 60);
  return (at ? "... " : "") + text.slice(at, at + 180);
}

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  found.hidden = words.length === 0;
  if (found.hidden || typeof SEARCH_INDEX === "undefined") return;
  const hits = SEARCH_INDEX.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0);
  hits.sort(([a], [b]) => b - a);
  if (hits.length === 0) found.textContent = "No page has all of these words.";
  for (const [, entry] of hits.slice(0, SHOWN)) {
    const link = document.createElement("a");
    link.href = `${home}/${entry.u}`;
    link.textContent = entry.h === entry.p ? entry.p : `${entry.p}: ${entry.h}`;
    const text = document.createElement("p");
    text.textContent = excerpt(entry.t, words[0]);
    found.append(link, text);
  }
}

input.addEventListener("focus", load);
input.addEventListener("input", search);
