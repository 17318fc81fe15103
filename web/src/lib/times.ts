// This side's part of the chain of times (C9), in milliseconds: pending 300 s < chat on the server 400 s < here.
export const chatTimeout = 420_000
export const frameTimeout = 430_000
