package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// clause is one promise.
type clause struct{ id, text string }

// section groups the clauses under a heading.
type section struct {
	title   string
	clauses []clause
}

// row is a line of the document's tables.
type row struct {
	line      int
	id, text  string
	reference string
}

var (
	idPattern = regexp.MustCompile(`^[A-Z][0-9]+(\.[0-9]+)*(\.[a-z])?$`)
	rowStart  = regexp.MustCompile(`^\|\s*([A-Z][0-9][^|\s]*)\s*\|`)
	// A reference is `path/of/x_test.go:TestName`, perhaps with a subtest.
	reference = regexp.MustCompile("^`([^`:]+_test\\.go):((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]*)(?:/[^`]*)?`$")
)

// minReason is how short a reason for an open clause may be.
const minReason = 10

var errClauses = errors.New("clauses.txt")

// parseClauses reads sections ("## Title") and lines "ID | text".
func parseClauses(text string) ([]section, error) {
	var sections []section
	seen := map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, section{title: title})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, promise, ok := strings.Cut(line, " | ")
		switch {
		case !ok || !idPattern.MatchString(id) || strings.TrimSpace(promise) == "" || strings.Contains(promise, "|"):
			return nil, fmt.Errorf("%w: line %d is not \"ID | text\": %q", errClauses, n+1, line)
		case seen[id]:
			return nil, fmt.Errorf("%w: line %d repeats %s", errClauses, n+1, id)
		case len(sections) == 0:
			return nil, fmt.Errorf("%w: line %d stands before the first section", errClauses, n+1)
		}
		seen[id] = true
		last := &sections[len(sections)-1]
		last.clauses = append(last.clauses, clause{id, strings.TrimSpace(promise)})
	}
	if len(seen) == 0 {
		return nil, fmt.Errorf("%w: no clauses", errClauses)
	}
	return sections, nil
}

// parseRows reads the rows of the document's tables that begin with an
// identifier.
func parseRows(document string) (rows []row, faults []string) {
	for n, line := range strings.Split(document, "\n") {
		if !rowStart.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			faults = append(faults, fmt.Sprintf("line %d: a row has three cells, this one %d", n+1, len(cells)))
			continue
		}
		rows = append(rows, row{
			line: n + 1,
			id:   strings.TrimSpace(cells[0]), text: strings.TrimSpace(cells[1]), reference: strings.TrimSpace(cells[2]),
		})
	}
	return rows, faults
}

// result of a check.
type result struct {
	faults       []string
	tested, open int
}

// check compares the document with the clauses and the tests of the tree.
func check(document string, sections []section, tree fs.FS) result {
	var res result
	rows, faults := parseRows(document)
	res.faults = faults
	byID := map[string]row{}
	for _, r := range rows {
		if first, ok := byID[r.id]; ok {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s has a row at line %d already", r.line, r.id, first.line))
			continue
		}
		byID[r.id] = r
	}
	known := map[string]bool{}
	for _, s := range sections {
		for _, c := range s.clauses {
			known[c.id] = true
			r, ok := byID[c.id]
			if !ok {
				res.faults = append(res.faults, fmt.Sprintf("clause %s has no row: %s", c.id, c.text))
				continue
			}
			if r.text != c.text {
				res.faults = append(res.faults, fmt.Sprintf("line %d: the text of %s differs from clauses.txt; 'make update-contract' repairs", r.line, c.id))
			}
			res.judge(r, tree)
		}
	}
	for _, r := range rows {
		if !known[r.id] {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s is not a clause of clauses.txt", r.line, r.id))
		}
	}
	return res
}

// judge one row's reference: tests that exist, or "open: " and why.
func (res *result) judge(r row, tree fs.FS) {
	if reason, ok := strings.CutPrefix(r.reference, "open:"); ok {
		res.open++
		if len(strings.TrimSpace(reason)) < minReason {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s is open without a reason", r.line, r.id))
		}
		return
	}
	res.tested++
	for part := range strings.SplitSeq(r.reference, ", ") {
		m := reference.FindStringSubmatch(part)
		if m == nil {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s is neither `path_test.go:TestName` nor \"open: why\": %q", r.line, r.id, part))
			continue
		}
		source, err := fs.ReadFile(tree, m[1])
		if err != nil {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s: %v", r.line, r.id, err))
			continue
		}
		if !strings.Contains("\n"+string(source), "\nfunc "+m[2]+"(") {
			res.faults = append(res.faults, fmt.Sprintf("line %d: %s: %s has no %s", r.line, r.id, m[1], m[2]))
		}
	}
}

// beginning of the first table's section in the document.
const tablesBegin = "<!-- clauses -->"

// render writes the tables after the document's introduction.
func render(document string, sections []section) string {
	rows, _ := parseRows(document)
	said := map[string]string{}
	for _, r := range rows {
		said[r.id] = r.reference
	}
	introduction, _, _ := strings.Cut(document, tablesBegin)
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString(tablesBegin + "\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n| id | clause | test |\n|---|---|---|\n", s.title)
		for _, c := range s.clauses {
			ref := said[c.id]
			if ref == "" {
				ref = "open: no test shows it yet"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.id, c.text, ref)
		}
	}
	return b.String()
}
