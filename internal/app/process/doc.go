// Package process is the runtime of apps that Atoll runs itself: one file apps/NAME.yaml in the data directory an app,
// each in a session of its own, with its output in files, so that apps outlive the node and are taken over by the next
// one. It is no container engine: an app sees the machine as its user does, and a child that opens a session of its own
// (a daemon in the old sense) is out of its reach.
//
// # The definition
//
//	command: [/usr/bin/python3, -u, server.py]  # required; run as it is, by no shell
//	title: Photo frame                          # optional, shown beside the name
//	directory: /srv/frame                       # default: the user's home, else /
//	environment: {PORT: "8080"}                 # added to PATH, HOME, USER and LANG; nothing else is passed on
//	restart: on-failure                         # always, on-failure or never (default)
//	autostart: true                             # with the node, or when the file first appears; default false
//	stop_timeout: 30s                           # from SIGTERM to SIGKILL; default 10s, at most 10m
//	user: media                                 # required where the node runs as root
//
// A definition is a regular file of the node's own user and not writable by others, and so is the folder. A change
// counts from the next start. Names are lower-case letters, digits, dot, dash and underscore, 31 at most.
//
// The node's own service unit must leave the apps alone when the node is restarted (systemd: KillMode=process).
package process
