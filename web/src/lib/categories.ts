// What each category is, in the host's words.
export interface Category {
  id: string
  title: string
  about: string
  stays?: string
}

export const categories: Category[] = [
  { id: 'system', title: 'System', about: 'Disks, processor, memory, load, temperatures, uptime, addresses.' },
  { id: 'apps', title: 'Apps', about: 'Which apps there are, how they are, what their logs say.' },
  { id: 'content', title: 'Content', about: 'The names and sizes in the shared folder, and what peers share.' },
  { id: 'files', title: 'Files', about: 'The names and sizes in the folders that the configuration lists; never what is in a file.', stays: 'Arguments and results of these calls are not kept on disk.' },
  { id: 'mesh', title: 'Mesh', about: 'Which other nodes this one knows, and whether they are reachable.' },
  { id: 'settings', title: 'Settings', about: 'The settings that are safe to read; the few that may be set.' },
  { id: 'wallet', title: 'Wallet', about: 'Height, synchronisation and balance of the configured Bitcoin node; it can pay nothing.', stays: 'Arguments and results of these calls are not kept on disk.' },
]

export function titleOf(id: string): string {
  return categories.find((c) => c.id === id)?.title ?? id
}

export const modes = [
  { id: 'confirm', title: 'Asks before each change', about: 'It reads what is open, and each change waits for your decision in a dialog.' },
  { id: 'read-only', title: 'Read-only', about: 'It reads what is open. Nothing that changes anything is offered to it or run.' },
  { id: 'off', title: 'Off', about: 'No chat, and turns that run are ended.' },
] as const
