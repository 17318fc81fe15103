// Package compose reads an engine's descriptions of containers: the Compose projects they form and their order, what each
// would run, which of them is this program's own or its model's. It asks no engine and knows nothing of apps and states.
package compose
