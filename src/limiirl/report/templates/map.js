"use strict";
// Draws every map of the page on its canvas from the embedded GeoJSON, without network requests. All labels are inserted as text.
(() => {
const NEAR = 9; // largest distance in pixels between the pointer and a selected feature
const SLOW = 24; // milliseconds; scenes that take longer are moved as an image during a gesture
const CLOSEST = 6; // pixels per metre at the largest zoom
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const EARTH = 6371000; // metres

const rgb = text => [1, 3, 5].map(place => parseInt(text.trim().slice(place, place + 2), 16));
const mix = (colour, paper, strength) => `rgb(${colour.map((part, i) => Math.round(strength * part + (1 - strength) * paper[i])).join()})`;

// Return the layers of a FeatureCollection. Each feature has points (x, y, x, y, ... in metres from the centre of the view,
// with y to the south), a bounding box, a stroke and facts.
function readLayers(data) {
  const [west, south, east, north] = data.bbox, metres = (EARTH * Math.PI) / 180, middle = (south + north) / 2;
  const shrink = Math.cos((middle * Math.PI) / 180);
  const project = ([lon, lat]) => [(lon - (west + east) / 2) * metres * shrink, (middle - lat) * metres];
  const layers = data.layers.map(layer => ({...layer, features: []}));
  for (const {geometry, properties} of data.features) {
    const {type, coordinates} = geometry;
    const flat = (type === "Point" ? [coordinates] : coordinates).flatMap(project);
    const points = Float64Array.from(flat), box = [Infinity, Infinity, -Infinity, -Infinity];
    flat.forEach((value, i) => {
      box[i % 2] = Math.min(box[i % 2], value);
      box[2 + (i % 2)] = Math.max(box[2 + (i % 2)], value);
    });
    let first = null;
    for (const [number, row] of Object.entries(properties)) {
      const [stroke, ...facts] = Array.isArray(row) ? row : [row, ...first];
      first = first || facts;
      layers[number].features.push({points, box, stroke, facts});
    }
  }
  return {layers, home: [...project([west, north]), ...project([east, south])]};
}

function distance2(px, py, ax, ay, bx, by) {
  const dx = bx - ax, dy = by - ay, square = dx * dx + dy * dy;
  const t = square ? Math.max(0, Math.min(1, ((px - ax) * dx + (py - ay) * dy) / square)) : 0;
  return (px - ax - t * dx) ** 2 + (py - ay - t * dy) ** 2;
}

class Chart {
  constructor(figure) {
    const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const find = name => figure.querySelector(name);
    this.figure = figure;
    this.canvas = find("canvas");
    this.tip = find(".map-tip");
    this.status = find(".map-status");
    this.bar = find(".map-scale");
    Object.assign(this, readLayers(data));
    this.scene = document.createElement("canvas");
    this.hit = null;
    this.cross = false;
    this.cost = 0;
    this.pointers = new Map();
    figure.classList.add("live");
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.resize();
  }

  // A view has a centre (x, y) in metres and a scale k in pixels per metre.
  fit([x0, y0, x1, y1]) {
    const k = Math.min(this.width / Math.max(x1 - x0, 20), this.height / Math.max(y1 - y0, 20)) * 0.94;
    return {x: (x0 + x1) / 2, y: (y0 + y1) / 2, k: Math.min(k, CLOSEST)};
  }

  resize() {
    const {clientWidth: width, clientHeight: height} = this.canvas;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1, first = !this.width;
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    Object.assign(this, {width, height, ratio});
    for (const canvas of [this.canvas, this.scene]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.least = this.fit(this.home).k / 3;
    if (first || !this.touched) this.view = this.fit(this.home);
    this.draw();
  }

  // Schedule a repaint. During a gesture, a slow scene is moved as an image instead.
  draw(moving = false) {
    this.moving = moving;
    if (!this.scheduled) this.scheduled = requestAnimationFrame(() => { this.scheduled = 0; this.frame(); });
  }

  frame() {
    if (!this.width) return;
    if (this.moving && this.cost > SLOW && this.drawn) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.draw(), 90);
    } else {
      this.drawScene();
    }
    this.present();
  }

  drawScene() {
    const started = performance.now(), pen = this.scene.getContext("2d"), {x, y, k} = this.view;
    const style = getComputedStyle(this.figure), colour = name => rgb(style.getPropertyValue(name));
    this.paper = colour("--map-paper");
    this.ink = colour("--ink");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = mix(this.paper, this.paper, 1);
    pen.fillRect(0, 0, this.width, this.height);
    pen.lineCap = pen.lineJoin = "round";
    this.labels = [];
    const edge = 30 / k, w = this.width / 2 / k + edge, h = this.height / 2 / k + edge;
    for (const layer of this.layers.filter(layer => layer.shown)) {
      const seen = layer.strokes.map(() => []);
      this.visit(layer, [x - w, y - h, x + w, y + h], feature => seen[feature.stroke].push(feature));
      layer.strokes.forEach((stroke, code) => {
        if (seen[code].length) this.drawFeatures(pen, layer, stroke, seen[code], mix(colour(stroke.colour), this.paper, stroke.strength));
      });
    }
    this.drawn = {...this.view};
    this.cost = performance.now() - started;
    this.figure.dataset.milliseconds = this.cost.toFixed(1);
  }

  // Call visit for each feature whose box intersects the window and whose stroke is drawn at this scale.
  visit(layer, [x0, y0, x1, y1], visit) {
    const fine = layer.strokes.map(stroke => !stroke.detail || 1 / this.view.k <= stroke.detail);
    for (const feature of layer.features) {
      const {box} = feature;
      if (box[0] <= x1 && box[2] >= x0 && box[1] <= y1 && box[3] >= y0 && fine[feature.stroke]) visit(feature);
    }
  }

  // Canvas coordinates of a point.
  place([x, y]) {
    return [(x - this.view.x) * this.view.k + this.width / 2, (y - this.view.y) * this.view.k + this.height / 2];
  }

  // Line widths increase with the zoom.
  widthOf(stroke) {
    return stroke.width * Math.min(Math.max(Math.sqrt(this.view.k * 8), 0.8), 2.2);
  }

  drawFeatures(pen, layer, stroke, features, colour) {
    const paper = mix(this.paper, this.paper, 1), width = this.widthOf(stroke);
    if (layer.kind === "points") {
      pen.fillStyle = colour;
      pen.strokeStyle = paper;
      pen.lineWidth = 1.5;
      pen.setLineDash([]);
      for (const feature of features) {
        pen.beginPath();
        pen.arc(...this.place(feature.points), stroke.width / 2, 0, 7);
        pen.fill();
        if (stroke.halo) pen.stroke();
      }
      return;
    }
    if (layer.kind === "labels") return this.drawLabels(pen, stroke, features, colour);
    if (layer.kind === "areas") {
      pen.fillStyle = colour;
      return this.trace(pen, features, "fill");
    }
    pen.setLineDash(stroke.dashed ? [2.2 * width, 1.8 * width] : []);
    if (stroke.halo) {
      pen.strokeStyle = paper;
      pen.lineWidth = width + 3;
      this.trace(pen, features);
    }
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    this.trace(pen, features);
  }

  // Write names with an outline; a name that overlaps an earlier one is omitted.
  drawLabels(pen, stroke, features, colour) {
    pen.font = `600 ${stroke.width}px ${getComputedStyle(document.body).getPropertyValue("--sans")}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.setLineDash([]);
    for (const {points, facts} of features) {
      const [x, y] = this.place(points), w = pen.measureText(facts[0]).width / 2 + 4, h = stroke.width / 2 + 3;
      if (this.labels.some(box => Math.abs(box.x - x) < box.w + w && Math.abs(box.y - y) < box.h + h)) continue;
      this.labels.push({x, y, w, h});
      pen.lineWidth = 3;
      pen.strokeStyle = mix(this.paper, this.paper, 1);
      pen.strokeText(facts[0], x, y);
      pen.fillStyle = colour;
      pen.fillText(facts[0], x, y);
    }
  }

  // Trace features in paths of a few thousand points, which browsers stroke faster than a single path.
  trace(pen, features, paint = "stroke") {
    const {k} = this.view, ox = this.width / 2 - this.view.x * k, oy = this.height / 2 - this.view.y * k;
    let drawn = 0;
    pen.beginPath();
    for (const {points} of features) {
      let px = points[0] * k + ox, py = points[1] * k + oy;
      pen.moveTo(px, py);
      for (let i = 2; i < points.length; i += 2) {
        const qx = points[i] * k + ox, qy = points[i + 1] * k + oy;
        // Skip bends below one pixel, except at the end.
        if (i < points.length - 2 && Math.abs(qx - px) + Math.abs(qy - py) < 0.9) continue;
        pen.lineTo(qx, qy);
        px = qx;
        py = qy;
        drawn++;
      }
      if (drawn > 2500) {
        pen[paint]();
        pen.beginPath();
        drawn = 0;
      }
    }
    pen[paint]();
  }

  // Copy the scene to the canvas, shifted and scaled to the current view, and draw the selected feature on top.
  present() {
    const pen = this.canvas.getContext("2d"), {x, y, k} = this.view, from = this.drawn;
    const scale = k / from.k;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = mix(this.paper, this.paper, 1);
    pen.fillRect(0, 0, this.width, this.height);
    pen.drawImage(this.scene, (from.x - x) * k + (this.width * (1 - scale)) / 2, (from.y - y) * k + (this.height * (1 - scale)) / 2, this.width * scale, this.height * scale);
    if (this.hit) this.drawHit(pen);
    if (this.cross) {
      pen.strokeStyle = mix(this.ink, this.paper, 1);
      pen.lineWidth = 1.5;
      pen.setLineDash([]);
      const cx = this.width / 2, cy = this.height / 2;
      pen.beginPath();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        pen.moveTo(cx + 4 * dx, cy + 4 * dy);
        pen.lineTo(cx + 13 * dx, cy + 13 * dy);
      }
      pen.stroke();
    }
    this.drawBar();
  }

  drawHit(pen) {
    const {layer, feature} = this.hit, stroke = layer.strokes[feature.stroke], width = this.widthOf(stroke);
    pen.lineCap = pen.lineJoin = "round";
    pen.setLineDash([]);
    if (layer.kind === "points") {
      pen.strokeStyle = mix(this.ink, this.paper, 1);
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(...this.place(feature.points), stroke.width / 2 + 2.5, 0, 7);
      pen.stroke();
      return;
    }
    for (const [colour, extra] of [[this.paper, 6], [this.ink, 2]]) {
      pen.strokeStyle = mix(colour, this.paper, 1);
      pen.lineWidth = Math.min(width, 6) + extra;
      this.trace(pen, [feature]);
    }
  }

  drawBar() {
    const metres = 110 / this.view.k, power = 10 ** Math.floor(Math.log10(metres));
    const round = [5, 2, 1].map(part => part * power).find(part => part <= metres);
    this.bar.style.width = `${round * this.view.k}px`;
    this.bar.textContent = round >= 1000 ? `${round / 1000} km` : `${round} m`;
  }

  // Return the feature nearest to a point on the screen; upper layers take precedence.
  at(px, py) {
    const {k} = this.view, x = this.view.x + (px - this.width / 2) / k, y = this.view.y + (py - this.height / 2) / k;
    for (const layer of this.layers.filter(layer => layer.shown && ["lines", "points"].includes(layer.kind)).reverse()) {
      const reach = NEAR / k;
      let best = reach * reach, nearest = null;
      this.visit(layer, [x - reach, y - reach, x + reach, y + reach], feature => {
        const {points} = feature;
        for (let i = 0; i < points.length; i += 2) {
          const j = Math.min(i + 2, points.length - 2), d = distance2(x, y, points[i], points[i + 1], points[j], points[j + 1]);
          if (d < best) [best, nearest] = [d, {layer, feature}];
        }
      });
      if (nearest) return nearest;
    }
    return null;
  }

  point(px, py, announce) {
    const hit = this.at(px, py), same = hit && this.hit && hit.layer === this.hit.layer && hit.feature === this.hit.feature;
    this.hit = hit;
    if (!hit) {
      this.tip.hidden = true;
    } else {
      if (!same || this.tip.hidden) this.showFacts(hit);
      this.tip.hidden = false;
      const {offsetWidth: w, offsetHeight: h} = this.tip;
      this.tip.style.left = `${Math.max(4, Math.min(px + 14, this.width - w - 4))}px`;
      this.tip.style.top = `${py + 18 + h < this.height ? py + 16 : Math.max(4, py - h - 12)}px`;
    }
    if (announce) this.status.textContent = hit ? this.tip.innerText.replace(/\s*\n\s*/g, ", ") : "No feature here";
    if (!same && this.drawn) this.present();
  }

  showFacts({layer, feature}) {
    const title = document.createElement("b"), rows = [title];
    title.textContent = layer.strokes[feature.stroke].label || layer.title;
    layer.facts.forEach((name, i) => {
      const text = feature.facts[i];
      if (!text) return;
      if (!name) {
        title.textContent = text; // the name of the feature
        return;
      }
      const row = document.createElement("span"), value = document.createElement("span");
      row.textContent = name;
      value.textContent = text;
      row.append(" ", value);
      rows.push(row);
    });
    this.tip.replaceChildren(...rows);
  }

  // Move by pixels; zoom by a factor about a fixed point on the screen.
  move(dx, dy) {
    this.touched = true;
    this.view.x -= dx / this.view.k;
    this.view.y -= dy / this.view.k;
    const [x0, y0, x1, y1] = this.home, w = x1 - x0, h = y1 - y0;
    this.view.x = Math.min(Math.max(this.view.x, x0 - w), x1 + w);
    this.view.y = Math.min(Math.max(this.view.y, y0 - h), y1 + h);
    this.draw(true);
  }

  zoom(factor, px = this.width / 2, py = this.height / 2) {
    this.touched = true;
    const k = Math.min(Math.max(this.view.k * factor, this.least), CLOSEST);
    this.view.x += (px - this.width / 2) * (1 / this.view.k - 1 / k);
    this.view.y += (py - this.height / 2) * (1 / this.view.k - 1 / k);
    this.view.k = k;
    this.draw(true);
  }

  // Animate a step by key or button, unless reduced motion is preferred.
  glide(step) {
    this.tip.hidden = true;
    this.hit = null;
    const frames = reducedMotion.matches ? 1 : 8;
    let left = frames;
    const next = () => {
      step(1 / frames);
      if (--left) requestAnimationFrame(next);
      else if (this.cross) this.point(this.width / 2, this.height / 2, true);
    };
    next();
  }

  reset() {
    this.touched = false;
    this.view = this.fit(this.home);
    this.hit = null;
    this.tip.hidden = true;
    this.draw();
  }

  listen() {
    const {canvas, figure} = this, where = event => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", event => {
      canvas.focus({preventScroll: true});
      this.cross = false;
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, where(event));
    });
    canvas.addEventListener("pointermove", event => this.pointerMoved(event, where(event)));
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, event => {
        this.pointers.delete(event.pointerId);
        figure.classList.remove("moving");
        if (name === "pointerup") this.point(...where(event));
      });
    canvas.addEventListener("pointerleave", () => { this.hit = null; this.tip.hidden = true; if (this.drawn) this.present(); });
    canvas.addEventListener("wheel", event => {
      // The wheel scrolls the page unless the map has focus.
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY * (event.deltaMode ? 20 : 1))) / 180), ...where(event));
    }, {passive: false});
    canvas.addEventListener("dblclick", event => { const at = where(event); this.glide(part => this.zoom(2 ** part, ...at)); });
    canvas.addEventListener("keydown", event => this.key(event));
    canvas.addEventListener("blur", () => { this.cross = false; this.tip.hidden = true; this.hit = null; this.draw(); });
    for (const button of figure.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", () => {
        const step = Number(button.dataset.zoom);
        if (step) this.glide(part => this.zoom(2 ** (step * part)));
        else this.reset();
      });
    for (const box of figure.querySelectorAll("[data-layer]")) {
      box.checked = this.layers[box.dataset.layer].shown; // browsers may restore an earlier state
      box.addEventListener("change", () => {
        for (const other of figure.querySelectorAll("[data-layer]")) this.layers[other.dataset.layer].shown = other.checked;
        this.hit = null;
        this.tip.hidden = true;
        this.draw();
      });
    }
  }

  pointerMoved(event, at) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.point(...at);
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const apart = place => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
      this.zoom(apart(at) / apart(before), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
      this.move((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
    } else {
      this.move(at[0] - before[0], at[1] - before[1]);
    }
    this.tip.hidden = true;
    this.hit = null;
    this.figure.classList.add("moving");
    this.pointers.set(event.pointerId, at);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const steps = {ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}, step = steps[event.key];
    this.cross = true;
    if (step) this.glide(part => this.move((step[0] * part * this.width) / 6, (step[1] * part * this.height) / 6));
    else if (event.key === "+" || event.key === "=") this.glide(part => this.zoom(2 ** part));
    else if (event.key === "-" || event.key === "_") this.glide(part => this.zoom(2 ** -part));
    else if (event.key === "0" || event.key === "Home") this.reset();
    else if (event.key === "Enter" || event.key === " ") this.point(this.width / 2, this.height / 2, true);
    else if (event.key === "Escape") { this.tip.hidden = true; this.hit = null; this.cross = false; this.draw(); }
    else { this.cross = false; return; }
    event.preventDefault();
  }
}

// Maps are created when they are near the window or when the browser is idle, so that pages with many maps load fast.
const waiting = new Set(document.querySelectorAll("figure.map"));

function make(figure) {
  if (!waiting.delete(figure)) return;
  try {
    new Chart(figure);
  } catch (error) {
    figure.classList.remove("live"); // fall back to the static image
    throw error;
  }
}

function idle() {
  const [next] = waiting;
  if (!next) return;
  make(next);
  whenIdle(idle);
}

const whenIdle = window.requestIdleCallback || (call => setTimeout(call, 200));
const watch = new IntersectionObserver(
  entries => entries.filter(entry => entry.isIntersecting).forEach(entry => make(entry.target)), {rootMargin: "800px"});
for (const figure of waiting) {
  // Show an empty frame until then, to avoid layout shifts.
  figure.classList.add("live");
  watch.observe(figure);
}
whenIdle(idle);
})();
