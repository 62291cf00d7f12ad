// What a map is made of: coordinates unpacked, and a grid that finds what is in view or near a place.
const CELLS = 72; // of the grid, along its longer side

// The inverse of map_data.packed: differences, zigzag, seven bits a byte.
function unpack(text) {
  const bytes = atob(text);
  let count = 0;
  for (let i = 0; i < bytes.length; i++) count += bytes.charCodeAt(i) < 128;
  const values = new Int32Array(count);
  for (let i = 0, at = 0, number = 0, shift = 0, total = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    number |= (byte & 127) << shift;
    shift += 7;
    if (byte < 128) {
      total += (number >>> 1) ^ -(number & 1);
      values[at++] = total;
      number = shift = 0;
    }
  }
  return values;
}

// Coordinates with the box of each thing, and a grid of cells that lists the things in each.
function makeShape(packed) {
  const x = unpack(packed.x), y = unpack(packed.y), lengths = unpack(packed.n);
  const m = lengths.length, start = new Int32Array(m + 1), box = new Int32Array(4 * m);
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (let id = 0; id < m; id++) {
    start[id + 1] = start[id] + lengths[id];
    let x0 = Infinity, y0 = Infinity, x1 = -Infinity, y1 = -Infinity;
    for (let i = start[id]; i < start[id + 1]; i++) {
      if (x[i] < x0) x0 = x[i];
      if (x[i] > x1) x1 = x[i];
      if (y[i] < y0) y0 = y[i];
      if (y[i] > y1) y1 = y[i];
    }
    box.set([x0, y0, x1, y1], 4 * id);
    left = Math.min(left, x0); top = Math.min(top, y0); right = Math.max(right, x1); bottom = Math.max(bottom, y1);
  }
  if (!m) left = top = right = bottom = 0;
  const size = Math.max(right - left, bottom - top, 1) / CELLS;
  const columns = Math.floor((right - left) / size) + 1, rows = Math.floor((bottom - top) / size) + 1;
  const shape = {x, y, start, box, m, left, top, right, bottom, size, columns, rows, stamp: new Int32Array(m), round: 0};
  const counts = new Int32Array(columns * rows + 1);
  for (let id = 0; id < m; id++) overCells(shape, box[4 * id], box[4 * id + 1], box[4 * id + 2], box[4 * id + 3], cell => counts[cell + 1]++);
  for (let cell = 0; cell < counts.length - 1; cell++) counts[cell + 1] += counts[cell];
  const members = new Int32Array(counts[counts.length - 1]), fill = counts.slice();
  for (let id = 0; id < m; id++) overCells(shape, box[4 * id], box[4 * id + 1], box[4 * id + 2], box[4 * id + 3], cell => { members[fill[cell]++] = id; });
  return Object.assign(shape, {counts, members});
}

function overCells(shape, x0, y0, x1, y1, visit) {
  const cut = (value, most) => Math.min(Math.max(Math.floor(value), 0), most - 1);
  const c0 = cut((x0 - shape.left) / shape.size, shape.columns), c1 = cut((x1 - shape.left) / shape.size, shape.columns);
  const r0 = cut((y0 - shape.top) / shape.size, shape.rows), r1 = cut((y1 - shape.top) / shape.size, shape.rows);
  for (let row = r0; row <= r1; row++) for (let column = c0; column <= c1; column++) visit(row * shape.columns + column);
}

// Calls visit once for each thing whose box meets the window.
function inWindow(shape, x0, y0, x1, y1, visit) {
  if (!shape.m || x1 < shape.left || x0 > shape.right || y1 < shape.top || y0 > shape.bottom) return;
  const round = ++shape.round, {box, stamp, counts, members} = shape;
  overCells(shape, x0, y0, x1, y1, cell => {
    for (let at = counts[cell]; at < counts[cell + 1]; at++) {
      const id = members[at];
      if (stamp[id] === round) continue;
      stamp[id] = round;
      if (box[4 * id] <= x1 && box[4 * id + 2] >= x0 && box[4 * id + 1] <= y1 && box[4 * id + 3] >= y0) visit(id);
    }
  });
}

function distance2(px, py, ax, ay, bx, by) {
  const dx = bx - ax, dy = by - ay, square = dx * dx + dy * dy;
  const t = square ? Math.max(0, Math.min(1, ((px - ax) * dx + (py - ay) * dy) / square)) : 0;
  return (px - ax - t * dx) ** 2 + (py - ay - t * dy) ** 2;
}

function within(shape, id, px, py) {
  let inside = false;
  for (let i = shape.start[id], last = shape.start[id + 1], j = last - 1; i < last; j = i++) {
    const {x, y} = shape;
    if (y[i] > py !== y[j] > py && px < ((x[j] - x[i]) * (py - y[i])) / (y[j] - y[i]) + x[i]) inside = !inside;
  }
  return inside;
}
