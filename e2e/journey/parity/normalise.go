package parity

import (
	"regexp"
	"strings"
)

// rule replaces what no two clusters have in common.
type rule struct {
	pattern *regexp.Regexp
	with    string
}

var rules = []rule{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d( [A-Z]+)?)?`), "<time>"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "<time>"},
	{regexp.MustCompile(`(https?://)?127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+(/\d+)?\b`), "<ip>"},
	{regexp.MustCompile(`\bfake-\d+(\.m\d+)?\b`), "<node>"},
	{regexp.MustCompile(`("?resourceVersion"?: )"?\d+"?`), "${1}<rv>"},
	{regexp.MustCompile(`\b(web|tools)-[0-9a-f]{6,16}-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "${1}-<hash>-<id>"},
	{regexp.MustCompile(`\b(web|tools)-[0-9a-f]{6,16}\b`), "${1}-<hash>"},
	{regexp.MustCompile(`SHA256=[0-9a-f]{64}`), "SHA256=<hash>"},
	{regexp.MustCompile(`(pod-template-hash[=:] ?"?)[0-9a-z]+`), "${1}<hash>"},
	{regexp.MustCompile(`\b(from-cron|debugger|job)-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "${1}-<id>"},
	{regexp.MustCompile(`kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}`), "kube-api-access-<id>"},
	{regexp.MustCompile(`\bcluster (plain|m\d)\b`), "cluster <cluster>"},
	{regexp.MustCompile(`/tmp/[A-Za-z0-9_./-]*[0-9]{6,}[A-Za-z0-9_./-]*`), "<file>"},
	{regexp.MustCompile(`(^|[\s(])(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?s( ago\))?(\s|$)`), "$1<age>$7"},
	{regexp.MustCompile(`(^|\s)\d+m(\d+s)?(\s|$)`), "$1<age>$3"},
	{regexp.MustCompile(`<age> \(x\d+ over <age>\)`), "<age>"},
	{regexp.MustCompile(`<invalid>|<unknown>`), "<age>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// clientNote is what a client logs of itself, as that it waits for its own rate
// limit. Warnings and errors of its log are compared.
var clientNote = regexp.MustCompile(`^I\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.go:\d+\] `)

// the endpoint's own label and column, clause 3.1.
var (
	clusterLabelLine = regexp.MustCompile(`^\s*"?isthmus\.dev/cluster"?[:=].*$`)
	clusterLabelItem = regexp.MustCompile(`,isthmus\.dev/cluster=m\d\b|\bisthmus\.dev/cluster=m\d,?`)
)

// Normalise makes the outputs of one command on two clusters comparable.
func Normalise(s, namespace string) string {
	lines := dropClusterColumn(strings.Split(s, "\n"))
	var out []string
	for _, line := range lines {
		line = strings.ReplaceAll(line, namespace, "<ns>")
		if clusterLabelLine.MatchString(line) || clientNote.MatchString(line) {
			continue
		}
		line = clusterLabelItem.ReplaceAllString(line, "")
		// Ages side by side share the blank between them.
		for range 2 {
			for _, r := range rules {
				line = r.pattern.ReplaceAllString(line, r.with)
			}
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return strings.Join(out, "\n")
}

var clusterHeader = regexp.MustCompile(`^[A-Z].*\sCLUSTER(\s|$)`)

// dropClusterColumn takes the CLUSTER column off the tables of an output. A
// table ends at an empty line.
func dropClusterColumn(lines []string) []string {
	start, end := -1, -1
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		switch {
		case clusterHeader.MatchString(line):
			start = strings.LastIndex(line, "CLUSTER")
			rest := line[start+len("CLUSTER"):]
			end = -1
			if trimmed := strings.TrimLeft(rest, " "); trimmed != "" {
				end = len(line) - len(trimmed)
			}
		case line == "":
			start, end = -1, -1
		}
		if start >= 0 && len(line) >= start {
			after := ""
			if end >= 0 && len(line) >= end {
				after = line[end:]
			}
			line = line[:start] + after
		}
		out = append(out, line)
	}
	return out
}
