package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// table is a heading and rows of cells; the first column is text.
type table struct {
	title string
	head  []string
	rows  [][]string
}

// Write prints the result for a terminal, or as Markdown.
func (r *Result) Write(w io.Writer, markdown bool) error {
	var out strings.Builder
	where := "cluster-gateway as a process of its own"
	if r.InProcess {
		where = "the cache inside the endpoint"
	}
	fmt.Fprintf(&out, "%d Pods, %s, %d CPUs, %s, took %s; load average before %s, after %s\n",
		r.Pods, where, r.CPUs, r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second), r.Load[0], r.Load[1])
	for _, t := range r.tables() {
		if markdown {
			t.markdown(&out)
		} else {
			t.text(&out)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (r *Result) tables() []table {
	return []table{r.listTable(), r.wallTable(), r.memoryTable(), r.fillTable(), r.latencyTable(), r.fanOutTable(), r.idleTable()}
}

func (r *Result) holder() string {
	if r.InProcess {
		return "endpoint"
	}
	return "gateway"
}

func (r *Result) listTable() table {
	t := table{title: "LIST: CPU per Pod", head: []string{"form", "Pods", "kube-apiserver", r.holder(), "ratio", "with the endpoint", "ratio"}}
	for _, row := range r.Lists {
		n := time.Duration(max(row.Product.Pods, 1))
		t.rows = append(t.rows, []string{
			row.Form, fmt.Sprint(row.Product.Pods), micros(row.Reference.Total() / n), micros(row.Product.CPU[0] / n),
			formatRatio(ratio(row.Product.CPU[0], row.Reference.Total())), micros(row.Product.Total() / n),
			formatRatio(ratio(row.Product.Total(), row.Reference.Total())),
		})
	}
	return t
}

func (r *Result) wallTable() table {
	t := table{title: "LIST: time and size", head: []string{"form", "kube-apiserver", "endpoint", "first byte, kube-apiserver", "first byte, endpoint", "bytes per Pod, kube-apiserver", "bytes per Pod, endpoint"}}
	for _, row := range r.Lists {
		perPod := func(c Cost) string { return fmt.Sprint(c.Bytes / int64(max(c.Pods, 1))) }
		t.rows = append(t.rows, []string{
			row.Form, millis(row.Reference.Wall), millis(row.Product.Wall), millis(row.Reference.FirstByte), millis(row.Product.FirstByte),
			perPod(row.Reference), perPod(row.Product),
		})
	}
	return t
}

func (r *Result) memoryTable() table {
	t := table{title: "Memory (RSS, of it file-backed, peak since the row before)", head: []string{"when", "kube-apiserver", r.holder(), "per Pod over empty", "endpoint"}}
	for _, row := range r.Memory {
		perPod := "-"
		if row.What != "empty" {
			perPod = fmt.Sprintf("%.1f KiB", float64(row.Product.RSS-r.Memory[0].Product.RSS)/float64(max(r.Pods, 1))/1024)
		}
		t.rows = append(t.rows, []string{row.What, row.Reference.String(), row.Product.String(), perPod, row.Endpoint.String()})
	}
	return t
}

func (r *Result) fillTable() table {
	t := table{title: "First fill after a restart", head: []string{"process", "until a full LIST", "CPU", "peak RSS", "RSS then"}}
	for _, f := range r.Fills {
		t.rows = append(t.rows, []string{f.Process, millis(f.Ready), millis(f.CPU), mebibytes(f.Memory.Peak), mebibytes(f.Memory.RSS)})
	}
	return t
}

func (r *Result) latencyTable() table {
	t := table{title: "Watch: seen behind the product after it was seen at the member", head: []string{"watched at", "events/s", "events", "p50", "p99", "max"}}
	for _, l := range r.Latency {
		t.rows = append(t.rows, []string{l.Via, fmt.Sprintf("%.0f", l.PerSecond), fmt.Sprint(l.Events), millis(l.P50), millis(l.P99), millis(l.Max)})
	}
	return t
}

func (r *Result) fanOutTable() table {
	t := table{title: "Fan-out: CPU per event and watcher", head: []string{"server", "watchers", "events/s", "CPU per event, no watcher", "per event and watcher", "with the endpoint"}}
	for _, f := range r.FanOut {
		t.rows = append(t.rows, []string{f.Server, fmt.Sprint(f.Watchers), fmt.Sprintf("%.0f", f.PerSecond), micros(f.Idle), micros(f.PerEvent), micros(f.Total)})
	}
	return t
}

func (r *Result) idleTable() table {
	t := table{title: "CPU at rest", head: []string{"process", "per second"}}
	for _, row := range r.Idle {
		t.rows = append(t.rows, []string{row.Process, millis(row.PerSecond)})
	}
	return t
}

// String is empty for a process that does not exist.
func (m Memory) String() string {
	if m.RSS == 0 {
		return "-"
	}
	return fmt.Sprintf("%s, %s, %s", mebibytes(m.RSS), mebibytes(m.File), mebibytes(m.Peak))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func formatRatio(f float64) string {
	if math.IsNaN(f) {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

func (t table) markdown(out *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(out, "\n### %s\n\n| %s |\n|---%s\n", t.title, strings.Join(t.head, " | "), strings.Repeat("|--:", len(t.head)-1)+"|")
	for _, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
}

func (t table) text(out *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	fmt.Fprintf(out, "\n%s\n", t.title)
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprint(out, "  ", cell, pad)
			} else {
				fmt.Fprint(out, "  ", pad, cell)
			}
		}
		fmt.Fprintln(out)
	}
}
