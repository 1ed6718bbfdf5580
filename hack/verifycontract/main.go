// Command verifycontract holds docs/contract.md to the list of clauses:
//
//	clauses.txt -> every clause has one row -> the row names tests that exist,
//	                                           or says "open: " and why
//
// With -update it writes the clauses' sections and texts anew and keeps what
// the rows say.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
)

//go:embed clauses.txt
var clauses string

func main() {
	update := flag.Bool("update", false, "write sections, identifiers and texts of the document anew")
	root := flag.String("root", ".", "the repository")
	document := flag.String("document", "docs/contract.md", "the document, relative to the repository")
	flag.Parse()
	if err := run(*root, *document, *update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root, document string, update bool) error {
	sections, err := parseClauses(clauses)
	if err != nil {
		return err
	}
	tree, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("open the repository: %w", err)
	}
	defer tree.Close()
	text, err := tree.ReadFile(document)
	if err != nil && (!update || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("read the document: %w", err)
	}
	if update {
		if err := tree.WriteFile(document, []byte(render(string(text), sections)), 0o644); err != nil {
			return fmt.Errorf("write the document: %w", err)
		}
		return nil
	}
	result := check(string(text), sections, tree.FS())
	for _, fault := range result.faults {
		fmt.Fprintf(os.Stderr, "%s: %s\n", document, fault)
	}
	if n := len(result.faults); n > 0 {
		return fmt.Errorf("%s has %d faults", document, n)
	}
	fmt.Printf("%s: %d clauses, %d with tests, %d open\n", document, result.tested+result.open, result.tested, result.open)
	return nil
}
