package conformance

import (
	"bytes"
	"regexp"
)

// progress reads ginkgo's verbose output and says a line for each spec that
// ended.
type progress struct {
	total, done int
	ended       string // how the spec ended whose name comes next
	rest        []byte
	logf        func(format string, args ...any)
}

func newProgress(total int, logf func(string, ...any)) *progress {
	return &progress{total: total, logf: logf}
}

// "• [5.300 seconds]" or "• [FAILED] [61.2 seconds]", then the spec's name.
var endLine = regexp.MustCompile(`^• (\[(?:FAILED|PANICKED!?|INTERRUPTED|TIMEDOUT)\] )?\[([0-9.]+) seconds\]`)

func (p *progress) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	for {
		line, rest, found := bytes.Cut(p.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		p.rest = rest
		p.line(string(line))
	}
}

func (p *progress) line(line string) {
	if p.ended != "" {
		p.done++
		p.logf("%3d/%d %s  %s", p.done, p.total, p.ended, line)
		p.ended = ""
		return
	}
	if match := endLine.FindStringSubmatch(line); match != nil {
		p.ended = "ok   " + match[2] + "s"
		if match[1] != "" {
			p.ended = "FAIL " + match[2] + "s"
		}
	}
}
