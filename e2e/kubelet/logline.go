package kubelet

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// timeFormat is the CRI's: nanoseconds of fixed width.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// logLine is one line of a container's log.
type logLine struct {
	at      time.Time
	stream  string // stdout or stderr
	partial bool   // without a line break
	text    []byte
}

// parseLine reads "TIME STREAM TAG TEXT".
func parseLine(line []byte) (logLine, bool) {
	parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
	if len(parts) != 4 {
		return logLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil {
		return logLine{}, false
	}
	stream := string(parts[1])
	if stream != "stdout" && stream != "stderr" {
		return logLine{}, false
	}
	tag, _, _ := bytes.Cut(parts[2], []byte(":"))
	if !bytes.Equal(tag, []byte("F")) && !bytes.Equal(tag, []byte("P")) {
		return logLine{}, false
	}
	return logLine{at: at, stream: stream, partial: tag[0] == 'P', text: bytes.Clone(parts[3])}, true
}

// encode is the inverse of parseLine, with the line's break.
func (l logLine) encode() []byte {
	tag := "F"
	if l.partial {
		tag = "P"
	}
	return fmt.Appendf(nil, "%s %s %s %s\n", l.at.UTC().Format(timeFormat), l.stream, tag, l.text)
}

// render is what a reader of the log sees.
func (l logLine) render(timestamps bool) []byte {
	var out []byte
	if timestamps {
		out = append(l.at.UTC().AppendFormat(out, timeFormat), ' ')
	}
	out = append(out, l.text...)
	if !l.partial {
		out = append(out, '\n')
	}
	return out
}

// logOptions are those of the Pod's log subresource.
type logOptions struct {
	follow, previous, timestamps bool
	since                        time.Time // zero for all
	tail                         int64     // -1 for all
	limit                        int64     // bytes; -1 for all
	stream                       string    // empty for both
}

func parseLogOptions(query url.Values, now time.Time) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1}
	var err error
	flag := func(name string) bool {
		value := query.Get(name)
		return value != "" && value != "false" && value != "0"
	}
	number := func(name string, least int64) (int64, bool) {
		text := query.Get(name)
		if text == "" || err != nil {
			return 0, false
		}
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil || n < least {
			err = fmt.Errorf("%w: %s=%q: want a number of at least %d", ErrBadRequest, name, text, least)
			return 0, false
		}
		return n, true
	}
	o.follow, o.previous, o.timestamps = flag("follow"), flag("previous"), flag("timestamps")
	if n, ok := number("tailLines", 0); ok {
		o.tail = n
	}
	if n, ok := number("limitBytes", 1); ok {
		o.limit = n
	}
	if n, ok := number("sinceSeconds", 1); ok {
		// More than a century is all there is; it must not overflow.
		o.since = now.Add(-time.Duration(min(n, 100*365*24*3600)) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" && err == nil {
		if query.Get("sinceSeconds") != "" {
			return o, fmt.Errorf("%w: at most one of sinceTime and sinceSeconds", ErrBadRequest)
		}
		if o.since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			err = fmt.Errorf("%w: sinceTime: %w", ErrBadRequest, err)
		}
	}
	switch stream := query.Get("stream"); stream {
	case "", "All":
	case "Stdout":
		o.stream = "stdout"
	case "Stderr":
		o.stream = "stderr"
	default:
		return o, fmt.Errorf("%w: stream %q", ErrBadRequest, stream)
	}
	return o, err
}

func (o logOptions) wants(l logLine) bool {
	return !l.at.Before(o.since) && (o.stream == "" || o.stream == l.stream)
}

// choose picks the lines that the options ask for, in the order of time.
func (o logOptions) choose(lines []logLine) []logLine {
	var chosen []logLine
	for _, line := range lines {
		if o.wants(line) {
			chosen = append(chosen, line)
		}
	}
	slices.SortStableFunc(chosen, func(a, b logLine) int { return a.at.Compare(b.at) })
	if o.tail >= 0 && int64(len(chosen)) > o.tail {
		chosen = chosen[int64(len(chosen))-o.tail:]
	}
	return chosen
}
