// Package durable holds tests that take a node's disk, files and life away: full and read-only file systems, each file of
// the data directory damaged in each way, kill -9 under load over all doors. It has no code of its own; package eval, whose
// houses it uses, tries what a node decides, and this one what it still knows afterwards.
package durable
