// back is where to go after a login: only a place of this interface, whatever the address says.
export function back(to: unknown): string {
  return typeof to === 'string' && /^\/(?![/\\])/.test(to) && !to.startsWith('/login') && !to.startsWith('/setup') ? to : '/'
}
