// Package systemd is the runtime of the systemd units that the owner listed: their state and jobs over D-Bus, their logs
// from the journal. It is no systemctl: a unit outside the list is not read, not started and not named to systemd, and no
// unit is enabled, masked or changed.
//
// Starting and stopping takes no root: a polkit rule (PolkitRule) lets the node's user do it for exactly the listed units,
// and the group systemd-journal lets it read their logs. Probe says what is missing.
package systemd
