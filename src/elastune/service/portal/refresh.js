// Loads again when asked to, never twice at once and not more often than every so many milliseconds.

export function refresher(load, pause_ms = 2000) {
  let busy = false;
  let again = false;
  let closed = false;

  async function run() {
    busy = true;
    again = false;
    await load().catch(() => {}); // the next event asks again
    setTimeout(() => {
      busy = false;
      if (again && !closed) run();
    }, pause_ms);
  }

  return {
    ask() {
      again = true;
      if (!busy && !closed) run();
    },
    close() { closed = true; },
  };
}
