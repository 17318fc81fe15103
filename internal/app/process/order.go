package process

import (
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"

	"atoll/internal/proc"
)

// LaunchArg is the hidden first argument by which the program becomes an app's launcher: main must call Launch for it
// before anything else.
const LaunchArg = proc.LaunchArg

// Launch is that launcher. It returns an exit code only where it failed.
func Launch() int { return proc.Launch() }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// orderFor settles what the definition leaves to its user's account.
func orderFor(d *definition, who account) (proc.Order, error) {
	o := proc.Order{Command: d.Command, Directory: d.Directory}
	var u *user.User
	var err error
	if d.User == "" {
		u, err = user.LookupId(strconv.Itoa(who.uid))
	} else {
		u, err = who.lookup(d.User)
	}
	if err != nil && d.User != "" {
		return proc.Order{}, errors.New("there is no user " + clip(d.User) + " on this machine")
	}
	env := map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8", "HOME": "/", "USER": strconv.Itoa(who.uid)}
	if u != nil {
		env["HOME"], env["USER"] = u.HomeDir, u.Username
		if who.uid == 0 {
			if err := become(&o, u); err != nil {
				return proc.Order{}, err
			}
		}
	}
	maps.Copy(env, d.Environment)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		o.Environment = append(o.Environment, k+"="+env[k])
	}
	if o.Directory == "" {
		o.Directory, o.Fallback = env["HOME"], true
	}
	return o, nil
}

func become(o *proc.Order, u *user.User) (err error) {
	o.Become = true
	if o.UID, err = strconv.Atoi(u.Uid); err != nil {
		return err
	}
	if o.GID, err = strconv.Atoi(u.Gid); err != nil {
		return err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("the groups of %s cannot be read: %w", u.Username, err)
	}
	for _, g := range groups {
		n, err := strconv.Atoi(g)
		if err != nil {
			return err
		}
		o.Groups = append(o.Groups, n)
	}
	return nil
}
