// Command verifycontract holds docs/contract.md to the lists of clauses and of
// faults:
//
//	clauses.txt, faults.txt -> every line has one row -> the row names tests that
//	                                                     exist, or says "open: "
//	                                                     and why
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

var (
	//go:embed clauses.txt
	clauses string
	//go:embed faults.txt
	faults string
)

// lists are all that the document must speak of.
func lists() ([]section, error) { return parseClauses(clauses + "\n" + faults) }

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
	sections, err := lists()
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
	fmt.Printf("%s: %d rows, %d with tests, %d open\n", document, result.tested+result.open, result.tested, result.open)
	return nil
}
