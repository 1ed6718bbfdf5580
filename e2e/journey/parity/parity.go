// Package parity compares what a script of commands says about two clusters:
//
//	commands.yaml -> run against each -> Normalise -> Compare -> lines that differ
//	differences.yaml -> the lines that may, each with the clause that demands it
//
// A line that differs and is not listed is a fault; so is a listed one that does
// not differ.
package parity

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Group is a script whose commands run one after the other in a namespace of
// their own.
type Group struct {
	Name     string    `json:"name"`
	Commands []Command `json:"commands"`
}

// Command is a line of shell in which kubectl talks to one cluster.
type Command struct {
	Name string `json:"name"`
	Run  string `json:"run"`
	// Code is the exit code that both must have.
	Code int `json:"code,omitempty"`
	// Stdin is given to the shell.
	Stdin string `json:"stdin,omitempty"`
	// Quiet commands prepare something: their output is not compared.
	Quiet bool `json:"quiet,omitempty"`
	// Unordered output is compared as a set of lines.
	Unordered bool `json:"unordered,omitempty"`
}

// Difference is what the endpoint may say otherwise, and why.
type Difference struct {
	Command string `json:"command"` // GROUP/NAME
	Clause  string `json:"clause"`
	Because string `json:"because"`
	Diff    string `json:"diff"`
	// Code is the endpoint's exit code where that differs too.
	Code *int `json:"code,omitempty"`
}

// ErrBadScript is in every complaint about the files.
var ErrBadScript = errors.New("bad script")

// Load reads both files.
func Load(commands, differences string) ([]Group, []Difference, error) {
	var groups []Group
	var listed []Difference
	if err := read(commands, &groups); err != nil {
		return nil, nil, err
	}
	if err := read(differences, &listed); err != nil {
		return nil, nil, err
	}
	known := map[string]bool{}
	for _, g := range groups {
		for _, c := range g.Commands {
			id := g.Name + "/" + c.Name
			if c.Name == "" || c.Run == "" || known[id] {
				return nil, nil, fmt.Errorf("%w: %s: command %q has no name or line, or is there twice", ErrBadScript, commands, id)
			}
			known[id] = true
		}
	}
	seen := map[string]bool{}
	for _, d := range listed {
		if seen[d.Command] {
			return nil, nil, fmt.Errorf("%w: %s: %q is there twice", ErrBadScript, differences, d.Command)
		}
		seen[d.Command] = true
		if !known[d.Command] || d.Clause == "" || d.Because == "" || d.Diff == "" {
			return nil, nil, fmt.Errorf("%w: %s: %q names no command or lacks clause, because or diff", ErrBadScript, differences, d.Command)
		}
	}
	return groups, listed, nil
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadScript, path, err)
	}
	return nil
}

// Compare shows the lines that only one of two normalised outputs has, "-" for
// the plain cluster's and "+" for the endpoint's; "" when they agree.
func Compare(plain, endpoint string, unordered bool) string {
	a, b := split(plain), split(endpoint)
	if unordered {
		slices.Sort(a)
		slices.Sort(b)
	}
	var out strings.Builder
	for _, e := range diff(a, b) {
		fmt.Fprintln(&out, strings.TrimRight(e, " "))
	}
	return out.String()
}

func split(s string) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// diff walks the longest common subsequence.
func diff(a, b []string) []string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
