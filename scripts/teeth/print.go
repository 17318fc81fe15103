package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func writeJSON(w io.Writer, all []outcome) error {
	if err := json.MarshalWrite(w, all, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func writeTable(w io.Writer, all []outcome, took time.Duration) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "FAULT\tROWS\tFOUND BY\tTIME")
	n := 0
	for _, o := range all {
		by := string(o.State)
		if o.State == found {
			n++
			by = strings.TrimPrefix(o.Package, "./internal/") + " " + strings.Join(o.By, " ")
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%.0f s\n", o.Name, strings.Join(o.Rows, " "), by, o.Seconds)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d faults found, %s\n", n, len(all), took.Round(time.Second))
	return err
}
