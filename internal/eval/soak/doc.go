// Package soak holds a node under load for long: many people who chat, and a crowd that behaves badly. Its tests stand
// apart from those of eval, since the node here is a process of its own, whose memory and files can be measured.
package soak
