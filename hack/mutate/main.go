// Command mutate shows that tests can fail. It applies committed faults to the
// product, one at a time, and requires the tests that name them to notice:
//
//	mutations.yaml -> find and replace in a copy of the file
//	               -> go test -overlay (the tree is never written)
//	               -> caught | survived | does not compile | stale
//
// Everything but caught is a failure of this command.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

//go:embed mutations.yaml
var committed []byte

func main() {
	root := flag.String("root", ".", "the repository")
	only := flag.String("only", "", "regular expression on file and reason; the others are skipped")
	limit := flag.Duration("limit", 3*time.Minute, "time for each mutation, compilation included")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *root, *only, *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, only string, limit time.Duration) error {
	mutations, err := parse(committed)
	if err != nil {
		return err
	}
	filter, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var selected []Mutation
	for _, m := range mutations {
		if filter.MatchString(m.File + " " + m.Why) {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return errors.New("no mutation is selected")
	}
	if err := baseline(ctx, root, selected, limit); err != nil {
		return err
	}
	failed := 0
	for i, m := range selected {
		start := time.Now()
		verdict, detail := try(ctx, root, m, limit)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		fmt.Printf("[%d/%d] %-17s %s: %s (%s)\n", i+1, len(selected), verdict, m.File, m.Why, time.Since(start).Round(100*time.Millisecond))
		if verdict != Caught {
			failed++
			fmt.Println(detail)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d mutations were not caught", failed, len(selected))
	}
	fmt.Printf("%d mutations, every one caught\n", len(selected))
	return nil
}
