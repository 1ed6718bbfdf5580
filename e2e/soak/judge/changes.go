package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Report is what Changes has looked at, so that a run that shows nothing is seen
// to show nothing.
type Report struct {
	Creations, Updates, Deletions int
	// Ordered are the writes whose order in the store was compared, Epochs the
	// terms that wrote.
	Ordered int
	Epochs  []int64
	// Unidentified are deletions of objects that no log shows being made: an
	// audit log loses what a killed server was about to write.
	Unidentified int
}

// Changes matches every write of the engine to an intent that stood at that
// moment, and finds writes that came too late.
func Changes(writes []Write, records []Record, changes []Change, tolerance Tolerance) ([]string, Report) {
	j := matcher{tolerance: tolerance, records: map[Key][]Record{}, writes: map[Key][]Write{}, template: map[string]string{}}
	for _, w := range writes {
		j.writes[w.Key] = append(j.writes[w.Key], w)
	}
	for _, r := range records {
		j.records[r.Key] = append(j.records[r.Key], r)
	}
	for _, c := range changes {
		if c.UID != "" && c.TemplateUID != "" {
			j.template[c.UID] = c.TemplateUID
		}
	}
	var out []string
	for _, c := range changes {
		if !c.done() {
			continue
		}
		var why string
		if c.Verb == "delete" {
			why = j.deletion(c)
		} else {
			why = j.writing(c)
		}
		if why != "" {
			out = append(out, c.String()+": "+why)
		}
	}
	out = append(out, j.order(changes)...)
	return out, j.report
}

type matcher struct {
	tolerance Tolerance
	writes    map[Key][]Write
	records   map[Key][]Record
	template  map[string]string // of a copy, by UID
	report    Report
}

// deletion needs a deleted template, or a recorded placement without the
// cluster.
func (j *matcher) deletion(c Change) string {
	j.report.Deletions++
	uid := j.template[c.UID]
	if uid == "" {
		j.report.Unidentified++
	}
	for _, w := range j.writes[c.Key] {
		if w.Delete && w.Outcome != Refused && !w.Sent.After(c.At) && (uid == "" || w.UID == uid) {
			return ""
		}
	}
	if j.recorded(c, func(r Record) bool {
		return (uid == "" || r.UID == uid) && (r.Gone || !slices.Contains(r.Clusters, c.Member))
	}) {
		return ""
	}
	return fmt.Sprintf("nobody has deleted template %s, and no placement of then leaves the cluster out", uid)
}

// writing needs a client's write of that content, and a new copy a recorded
// placement with the cluster.
func (j *matcher) writing(c Change) string {
	if c.N < 0 {
		return "" // replicas, or marks that are taken off
	}
	known := slices.ContainsFunc(j.writes[c.Key], func(w Write) bool {
		return !w.Delete && w.N == c.N && w.Outcome != Refused && !w.Sent.After(c.At) && (w.UID == "" || c.TemplateUID == "" || w.UID == c.TemplateUID)
	})
	if !known {
		return "no client has written that content"
	}
	if c.Code != 201 {
		j.report.Updates++
		return ""
	}
	j.report.Creations++
	if j.recorded(c, func(r Record) bool {
		return !r.Gone && (c.TemplateUID == "" || r.UID == c.TemplateUID) && slices.Contains(r.Clusters, c.Member)
	}) {
		return ""
	}
	return "no placement of then has the cluster"
}

// recorded says whether a record of that kind stood when the change was made.
func (j *matcher) recorded(c Change, is func(Record) bool) bool {
	list := j.records[c.Key]
	for i, r := range list {
		if !is(r) || r.At.After(c.At.Add(j.tolerance.Late)) {
			continue
		}
		if i+1 == len(list) || !list[i+1].At.Add(j.tolerance.InFlight).Before(c.At) {
			return true
		}
	}
	return false
}

// order finds writes that the store took after newer ones: of an older content
// of the same template, and of a leader that had been replaced.
func (j *matcher) order(changes []Change) (out []string) {
	ordered := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool {
		return !c.done() || c.Version == 0 || c.Verb == "delete" || !c.Marked
	})
	slices.SortStableFunc(ordered, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Version, b.Version), a.At.Compare(b.At))
	})
	j.report.Ordered = len(ordered)
	type copyOf struct {
		member, template string
		Key
	}
	newestContent, newestTerm := map[copyOf]Change{}, map[string]Change{}
	epochs := map[int64]bool{}
	for _, c := range ordered {
		epochs[c.Epoch] = true
		of := copyOf{c.Member, c.TemplateUID, c.Key}
		if newer, ok := newestContent[of]; ok && c.N >= 0 && newer.N > c.N {
			out = append(out, fmt.Sprintf("%s: stale, after %s", c, newer))
		} else if c.N >= 0 {
			newestContent[of] = c
		}
		if newer, ok := newestTerm[c.Member]; ok && newer.Epoch > c.Epoch {
			out = append(out, fmt.Sprintf("%s: of a leader that had been replaced, after %s", c, newer))
		} else {
			newestTerm[c.Member] = c
		}
	}
	for e := range epochs {
		j.report.Epochs = append(j.report.Epochs, e)
	}
	slices.Sort(j.report.Epochs)
	return out
}

// Quiet are the writes of the engine after a moment at which all had arrived.
func Quiet(changes []Change, since time.Time) (out []string) {
	for _, c := range changes {
		if c.done() && c.At.After(since) {
			out = append(out, c.String()+": nothing was left to write")
		}
	}
	return out
}
