// The second script of the frame: everything that makes elements of a turn.

import { Live, turnElement } from './view'

export type View = { Live: typeof Live; turnElement: typeof turnElement }

Object.assign(globalThis, { atollView: { Live, turnElement } satisfies View })
