package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Mutation is one fault and the tests that must notice it.
type Mutation struct {
	// File is the path in the repository.
	File string `json:"file"`
	// Find occurs once in the file and is replaced by Replace.
	Find    string `json:"find"`
	Replace string `json:"replace"`
	// Package is where the tests are; the file's own by default.
	Package string `json:"package,omitempty"`
	// Run names the tests, as for go test -run.
	Run string `json:"run"`
	// Why says what promise the fault breaks.
	Why string `json:"why"`
}

// Errors of a list or of a mutation that does not fit the tree any more.
var (
	errList  = errors.New("mutations.yaml")
	errStale = errors.New("the mutation does not fit the file any more")
)

// parse reads and checks the list.
func parse(data []byte) ([]Mutation, error) {
	var list struct {
		Mutations []Mutation `json:"mutations"`
	}
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", errList, err)
	}
	if len(list.Mutations) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errList)
	}
	for i := range list.Mutations {
		m := &list.Mutations[i]
		if m.Package == "" {
			m.Package = "./" + path.Dir(m.File)
		}
		if err := m.validate(); err != nil {
			return nil, fmt.Errorf("%w: number %d (%s): %w", errList, i+1, m.File, err)
		}
	}
	return list.Mutations, nil
}

func (m *Mutation) validate() error {
	switch {
	case path.Ext(m.File) != ".go" || strings.HasSuffix(m.File, "_test.go"):
		return errors.New("file must be a Go file that is not a test")
	case path.IsAbs(m.File) || path.Clean(m.File) != m.File || strings.HasPrefix(m.File, ".."):
		return errors.New("file must be a clean path in the repository")
	case m.Find == "" || m.Find == m.Replace:
		return errors.New("find must be there and differ from replace")
	case m.Run == "" || m.Why == "":
		return errors.New("run and why must be there")
	case !strings.HasPrefix(m.Package, "./"):
		return errors.New("package must begin with ./")
	}
	return nil
}

// apply puts the fault into a file's text. The text to find must occur exactly
// once: otherwise nobody could say which fault was tried.
func (m *Mutation) apply(source string) (string, error) {
	if n := strings.Count(source, m.Find); n != 1 {
		return "", fmt.Errorf("%w: the text to find occurs %d times in %s", errStale, n, m.File)
	}
	mutated := strings.Replace(source, m.Find, m.Replace, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.File, mutated, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("the replacement is not Go: %w", err)
	}
	return mutated, nil
}
