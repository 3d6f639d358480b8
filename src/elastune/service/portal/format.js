// Numbers, times and money as people read them.

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return String(Number(value.toPrecision(5)));
}

// With as many digits as the others of its column.
export function figure(value) {
  const plain = typeof value === "number" && Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5;
  return plain ? value.toPrecision(5) : number(value);
}

export function value(given) {
  if (given === null) return "null";
  if (typeof given === "number") return number(given);
  return typeof given === "object" ? JSON.stringify(given) : String(given);
}

const UNITS = [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.9995) return seconds === 0 ? "0s" : `${Math.round(seconds * 1000)}ms`;
  if (seconds < 59.95) return `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))}s`;
  for (const [large, largeS, small, smallS] of UNITS) {
    const total = Math.round(seconds / smallS);
    const whole = Math.floor((total * smallS) / largeS);
    const rest = total - (whole * largeS) / smallS;
    if (whole) return rest ? `${whole}${large} ${rest}${small}` : `${whole}${large}`;
  }
  return `${Math.round(seconds)}s`;
}

export function money(usd) {
  if (usd === null || usd === undefined) return "–";
  if (usd === 0 || usd >= 1) return `$${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${usd < 1e-6 ? "0.00" : Number(usd.toPrecision(3)).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 9 })}`;
}

export function bytes(count) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (count < 1000) return `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return `${Number(count.toPrecision(4))} TB`;
}

export const percent = (fraction) => (fraction === null || fraction === undefined ? "–" : `${Math.floor(fraction * 100)}%`);

export const clock = (unix) => new Date(unix * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

const LONG = 200;

// The first line of a text, where it is not too long.
export function brief(text) {
  const line = text.trim().split(/\r?\n/, 1)[0];
  return line.length > LONG ? `${line.slice(0, LONG)}\u00a0…` : line === text.trim() ? line : `${line}\u00a0…`;
}

// {"model": {"layers": 2}} as [["model.layers", 2]]
export function flat(params, prefix = "") {
  return Object.entries(params).flatMap(([name, given]) =>
    given !== null && typeof given === "object" && !Array.isArray(given) && Object.keys(given).length
      ? flat(given, `${prefix}${name}.`)
      : [[prefix + name, given]]);
}
