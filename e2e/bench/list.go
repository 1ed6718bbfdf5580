package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// reading is what one reader saw of one LIST with all its pages.
type reading struct {
	wall      time.Duration
	firstByte time.Duration
	bytes     int64
	pods      int // distinct Pods, 0 when not counted
}

// Cost is what one LIST of one server costs: the medians of the samples.
type Cost struct {
	CPU       []time.Duration `json:"cpu"` // by process
	Wall      time.Duration   `json:"wall"`
	FirstByte time.Duration   `json:"firstByte"`
	Bytes     int64           `json:"bytes"`
	Pods      int             `json:"pods"`
}

// Total is the CPU of all processes.
func (c Cost) Total() time.Duration {
	var total time.Duration
	for _, d := range c.CPU {
		total += d
	}
	return total
}

// ListRow compares one form.
type ListRow struct {
	Form      string `json:"form"`
	Reference Cost   `json:"reference"`
	Product   Cost   `json:"product"`
}

const (
	// sampleCPU is how much CPU a sample must have used for the kernel's 10 ms
	// ticks to be fine enough, unless it gets too long.
	sampleCPU      = 400 * time.Millisecond
	sampleRequests = 40
	sampleWall     = 20 * time.Second
)

// read does one LIST. Every byte is drained; with count it is decoded after
// the clock has stopped.
func (t target) read(ctx context.Context, client *http.Client, f form, count bool) (reading, error) {
	var out reading
	path := f.path
	for {
		body, answer, took, first, err := t.page(ctx, client, path, f) //nolint:bodyclose // page has read and closed it
		if err != nil {
			return out, err
		}
		out.wall += took
		if out.firstByte == 0 {
			out.firstByte = first
		}
		out.bytes += int64(len(body))
		if f.initial {
			out.pods += bytes.Count(body, []byte("\n\x05ADDED\x12"))
			return out, nil
		}
		if !count && !f.paged {
			return out, nil
		}
		if body, err = plain(answer, body); err != nil {
			return out, err
		}
		if count {
			n, err := f.count(body)
			if err != nil {
				return out, fmt.Errorf("%s of %s: %w", f.name, t.name, err)
			}
			out.pods += n
		}
		next, err := f.nextPage(body)
		if err != nil || !f.paged || next == "" {
			return out, err
		}
		path = f.path + "&continue=" + url.QueryEscape(next)
	}
}

func (t target) page(ctx context.Context, client *http.Client, path string, f form) (body []byte, answer *http.Response, wall, first time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	answer, err = t.get(ctx, client, path, f.header())
	if err != nil {
		return nil, nil, 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or cut off by us
	var buffer bytes.Buffer
	if _, err = io.CopyN(&buffer, answer.Body, 1); err != nil {
		return nil, nil, 0, 0, fmt.Errorf("first byte of %s from %s: %w", f.name, t.name, err)
	}
	first = time.Since(start)
	if f.initial {
		err = readInitial(&buffer, answer.Body)
	} else {
		_, err = buffer.ReadFrom(answer.Body)
	}
	if err != nil {
		return nil, nil, 0, 0, fmt.Errorf("reading %s from %s: %w", f.name, t.name, err)
	}
	return buffer.Bytes(), answer, time.Since(start), first, nil
}

// initialEnd marks the bookmark that ends the initial events of a watch.
var initialEnd = []byte("k8s.io/initial-events-end")

func readInitial(to *bytes.Buffer, from io.Reader) error {
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		to.Write(chunk[:n])
		tail := to.Bytes()
		if bytes.Contains(tail[max(0, len(tail)-n-2*len(initialEnd)):], initialEnd) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch ended before its initial events: %w", err)
		}
	}
}

// sample repeats a LIST until its CPU can be told, and returns means of CPU and
// wall time.
func (t target) sample(ctx context.Context, f form, want int) (Cost, error) {
	client := t.client()
	defer client.CloseIdleConnections()
	// The connection and what is made once belong to no LIST.
	checked, err := t.read(ctx, client, f, true)
	if err != nil {
		return Cost{}, err
	}
	if checked.pods < want {
		return Cost{}, fmt.Errorf("%s of %s holds %d Pods, not %d", f.name, t.name, checked.pods, want)
	}
	before, err := cpuOf(t.processes)
	if err != nil {
		return Cost{}, err
	}
	cost := Cost{Bytes: checked.bytes, Pods: checked.pods}
	var walls, firsts []time.Duration
	start := time.Now()
	for n := 1; ; n++ {
		got, err := t.read(ctx, client, f, false)
		if err != nil {
			return Cost{}, err
		}
		if difference := max(got.bytes-checked.bytes, checked.bytes-got.bytes); difference > 64+checked.bytes/20 { // ages and numbers get longer
			return Cost{}, fmt.Errorf("%s of %s has %d bytes, and had %d", f.name, t.name, got.bytes, checked.bytes)
		}
		walls, firsts = append(walls, got.wall), append(firsts, got.firstByte)
		if cost.CPU, err = spent(t.processes, before); err != nil {
			return Cost{}, err
		}
		if cost.CPU[0] < sampleCPU && n < sampleRequests && time.Since(start) < sampleWall {
			continue
		}
		for i := range cost.CPU {
			cost.CPU[i] /= time.Duration(n)
		}
		cost.Wall, cost.FirstByte = median(walls), median(firsts)
		return cost, nil
	}
}

// medians merges the samples of one form and server.
func medians(samples []Cost) Cost {
	out := samples[0]
	out.CPU = make([]time.Duration, len(samples[0].CPU))
	pick := func(of func(Cost) time.Duration) time.Duration {
		values := make([]time.Duration, len(samples))
		for i, s := range samples {
			values[i] = of(s)
		}
		return median(values)
	}
	for i := range out.CPU {
		out.CPU[i] = pick(func(c Cost) time.Duration { return c.CPU[i] })
	}
	out.Wall = pick(func(c Cost) time.Duration { return c.Wall })
	out.FirstByte = pick(func(c Cost) time.Duration { return c.FirstByte })
	return out
}

// compareLists measures every form on both servers, interleaved, so that what
// else the machine does falls on both alike.
func compareLists(ctx context.Context, logf Logf, reference, product target, pods, rounds int) ([]ListRow, error) {
	var rows []ListRow
	samples := map[string][2][]Cost{}
	for round := range rounds {
		for _, f := range forms() {
			want := int(float64(pods) * f.share)
			var both [2]Cost
			for i, t := range []target{reference, product} {
				var err error
				if both[i], err = t.sample(ctx, f, want); err != nil {
					return nil, err
				}
			}
			s := samples[f.name]
			samples[f.name] = [2][]Cost{append(s[0], both[0]), append(s[1], both[1])}
			logf("round %d of %d, %s: %s and %s of CPU", round+1, rounds, f.name, both[0].Total().Round(time.Millisecond/10), both[1].Total().Round(time.Millisecond/10))
		}
	}
	for _, f := range forms() {
		rows = append(rows, ListRow{Form: f.name, Reference: medians(samples[f.name][0]), Product: medians(samples[f.name][1])})
	}
	return rows, nil
}
