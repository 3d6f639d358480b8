// Axes: where a value goes, and which round values get a tick.

const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function step(span, count, kind) {
  const least = span / Math.max(1, count);
  if (kind === "time" && least <= 86400) return TIMES.find((each) => each >= least) ?? 86400;
  const power = 10 ** Math.floor(Math.log10(least));
  const found = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * 0.999);
  return kind === "count" ? Math.max(1, Math.round(found)) : found;
}

// A scale from [low, high] to [from, to], in pixels. `kind`: number, count (whole numbers), time (seconds) or log.
export function scale(low, high, from, to, kind = "number", ticks = 5) {
  if (kind === "log") {
    const inner = scale(Math.log10(low), Math.log10(high), from, to, "number", ticks);
    const decades = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      if (10 ** power >= low * 0.999 && 10 ** power <= high * 1.001) decades.push(10 ** power);
    }
    const every = Math.ceil(decades.length / Math.max(2, ticks));
    const round = decades.filter((_, index) => index % every === 0);
    return { at: (v) => inner.at(Math.log10(v)), ticks: round.length > 1 ? round : [low, high] };
  }
  if (!(high > low)) {
    const pad = Math.abs(low) * 0.05 || 1;
    return { at: (v) => from + ((v - low + pad) / (2 * pad)) * (to - from), ticks: [low] };
  }
  const by = step(high - low, ticks, kind);
  const round = [];
  for (let i = Math.ceil(low / by - 1e-9); i * by <= high + by * 1e-9; i += 1) round.push(Number((i * by).toPrecision(12)));
  return { at: (v) => from + ((v - low) / (high - low)) * (to - from), ticks: round };
}

// Losses that fall over orders of magnitude are read on a logarithmic axis.
export function wantsLog(low, high) {
  return low > 0 && high / low > 100;
}

export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const each of values) {
    if (each < low) low = each;
    if (each > high) high = each;
  }
  return [low, high];
}

// From worst (0) to best (1), told apart in both schemes and by those who see few colours.
const STOPS = [[120, 94, 240], [44, 123, 182], [36, 160, 130], [240, 173, 30]];

export function colour(fraction) {
  const place = Math.min(0.9999, Math.max(0, fraction)) * (STOPS.length - 1);
  const [a, b] = [STOPS[Math.floor(place)], STOPS[Math.floor(place) + 1]];
  const mix = a.map((each, i) => Math.round(each + (b[i] - each) * (place % 1)));
  return `rgb(${mix.join(",")})`;
}
