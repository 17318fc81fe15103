// Runs before the first paint, so that a chosen theme does not flash. src/lib/theme.ts is the rest of it.
;(function () {
  try {
    var t = localStorage.getItem('atoll.theme') || localStorage.getItem('atoll.theme.node')
    if (t === 'light' || t === 'dark') document.documentElement.dataset.theme = t
  } catch (e) {
    // No storage: the system's theme it is.
  }
})()
