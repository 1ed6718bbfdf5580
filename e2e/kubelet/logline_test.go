package kubelet

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParseLine(t *testing.T) {
	const at = "2026-01-02T03:04:05.000000006Z"
	for raw, want := range map[string]string{
		at + " stdout F hello there\n": "hello there\n",
		at + " stderr F a\n":           "a\n",
		at + " stdout P no break\n":    "no break",
		at + " stdout F:x tagged\n":    "tagged\n",
		at + " stdout F \n":            "\n",
		at + " stdout F":               "invalid",
		at + " stdin F x\n":            "invalid",
		at + " stdout X x\n":           "invalid",
		"yesterday stdout F x\n":       "invalid",
		"\n":                           "invalid",
	} {
		line, ok := parseLine([]byte(raw))
		got := "invalid"
		if ok {
			got = string(line.render(false))
		}
		if got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
		if ok && want != "invalid" {
			if stamped := string(line.render(true)); stamped != at+" "+want {
				t.Errorf("%q with its time: %q", raw, stamped)
			}
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.000000006Z stdout F hello\n"))
	f.Add([]byte("2026-01-02T03:04:05+14:00 stderr P:a:b \n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, ok := parseLine(raw)
		if !ok || bytes.IndexByte(line.text, '\n') >= 0 {
			return
		}
		again, ok := parseLine(line.encode())
		// The format has four digits for a year.
		if year := line.at.UTC().Year(); year < 0 || year > 9999 {
			return
		}
		if !ok || !again.at.Equal(line.at) || again.stream != line.stream || again.partial != line.partial || !bytes.Equal(again.text, line.text) {
			t.Fatalf("%q: %+v became %+v", raw, line, again)
		}
	})
}

func TestParseLogOptions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := logOptions{tail: -1, limit: -1}
	with := func(change func(*logOptions)) logOptions { o := all; change(&o); return o }
	for query, want := range map[string]logOptions{
		"":                          all,
		"follow=true&previous=true": with(func(o *logOptions) { o.follow, o.previous = true, true }),
		"follow=false&timestamps=1": with(func(o *logOptions) { o.timestamps = true }),
		"tailLines=0&limitBytes=9":  with(func(o *logOptions) { o.tail, o.limit = 0, 9 }),
		"sinceSeconds=60":           with(func(o *logOptions) { o.since = now.Add(-time.Minute) }),
		"sinceTime=2026-01-01T00:00:00Z": with(func(o *logOptions) {
			o.since = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		}),
		"stream=Stderr": with(func(o *logOptions) { o.stream = "stderr" }),
		"stream=All":    all,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseLogOptions(values, now); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", query, got, err, want)
		}
	}
	for _, query := range []string{
		"tailLines=-1", "tailLines=x", "limitBytes=0", "sinceSeconds=0", "sinceTime=now", "stream=Both",
		"sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", "tailLines=x&sinceTime=2026-01-01T00:00:00Z",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseLogOptions(values, now); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%q: %+v, %v, want ErrBadRequest", query, got, err)
		}
	}
	o, err := parseLogOptions(url.Values{"sinceSeconds": {"9223372036854775807"}}, now)
	if err != nil || o.since.After(now) {
		t.Errorf("a span beyond all times: since %s, %v", o.since, err)
	}
}

func TestChoose(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	line := func(seconds int, stream, text string) logLine {
		return logLine{at: base.Add(time.Duration(seconds) * time.Second), stream: stream, text: []byte(text)}
	}
	// Two files one after the other: c lies between a and b in time.
	lines := []logLine{line(0, "stdout", "a"), line(4, "stderr", "b"), line(2, "stdout", "c"), line(4, "stdout", "d")}
	for name, tc := range map[string]struct {
		opts logOptions
		want string
	}{
		"all":         {logOptions{tail: -1}, "a c b d"},
		"the last":    {logOptions{tail: 1}, "d"},
		"none":        {logOptions{tail: 0}, ""},
		"more":        {logOptions{tail: 9}, "a c b d"},
		"since":       {logOptions{tail: -1, since: base.Add(2 * time.Second)}, "c b d"},
		"stderr":      {logOptions{tail: -1, stream: "stderr"}, "b"},
		"tail of one": {logOptions{tail: 1, stream: "stderr"}, "b"},
	} {
		var got []string
		for _, l := range tc.opts.choose(lines) {
			got = append(got, string(l.text))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %q", name, got, tc.want)
		}
	}
}

func TestLogWriterStopsAtTheLimit(t *testing.T) {
	lines := []logLine{{stream: "stdout", text: []byte("abc")}, {stream: "stdout", text: []byte("def")}, {stream: "stdout", text: []byte("x")}}
	for limit, want := range map[int64]string{1: "a", 4: "abc\n", 6: "abc\nde", 8: "abc\ndef\n", 99: "abc\ndef\nx\n", -1: "abc\ndef\nx\n"} {
		var out bytes.Buffer
		err := (&logWriter{w: &out, left: limit}).write(lines)
		if out.String() != want || errors.Is(err, errEnough) != (limit > 0 && limit < 10) {
			t.Errorf("limit %d: %q, %v, want %q", limit, out.String(), err, want)
		}
	}
}
