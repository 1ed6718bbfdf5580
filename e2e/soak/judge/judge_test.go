package judge

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	web   = Key{"Deployment", "web"}
	place = Key{Policy, "web"}
)

func at(s int) time.Time { return time.Unix(int64(s), 0) }

// run is a run that went right; each test doctors one log of it.
type run struct {
	writes    []Write
	records   []Record
	changes   []Change
	templates []Template
	copies    []Copy
}

func right() run {
	return run{
		writes: []Write{
			{Key: place, N: 1, Clusters: []string{"m1", "m2"}, Sent: at(0), Done: at(0), Outcome: Acknowledged},
			{Key: web, N: 1, UID: "u1", Replicas: 2, Sent: at(1), Done: at(1), Outcome: Acknowledged},
			{Key: web, N: 2, UID: "u1", Replicas: 3, Sent: at(10), Done: at(10), Outcome: Acknowledged},
			{Key: place, N: 2, Clusters: []string{"m2"}, Sent: at(100), Done: at(100), Outcome: Acknowledged},
			{Key: web, N: 3, UID: "u1", Replicas: 4, Sent: at(110), Done: at(112), Outcome: Unknown},
		},
		records: []Record{
			{Key: web, UID: "u1", Clusters: []string{"m1", "m2"}, At: at(2)},
			{Key: web, UID: "u1", Clusters: []string{"m2"}, At: at(101)},
		},
		changes: []Change{
			{Member: "m1", Key: web, Verb: "patch", Code: 201, Epoch: 1, N: 1, TemplateUID: "u1", UID: "c1", Version: 10, Marked: true, At: at(3)},
			{Member: "m2", Key: web, Verb: "patch", Code: 201, Epoch: 1, N: 1, TemplateUID: "u1", UID: "c2", Version: 10, Marked: true, At: at(3)},
			{Member: "m1", Key: web, Verb: "patch", Code: 200, Epoch: 1, N: 2, TemplateUID: "u1", UID: "c1", Version: 20, Marked: true, At: at(11)},
			{Member: "m2", Key: web, Verb: "patch", Code: 200, Epoch: 2, N: 2, TemplateUID: "u1", UID: "c2", Version: 20, Marked: true, At: at(11)},
			{Member: "m1", Key: web, Verb: "delete", Code: 200, Epoch: 2, N: -1, UID: "c1", At: at(103)},
			{Member: "m2", Key: web, Verb: "patch", Code: 500, Epoch: 1, N: 7, TemplateUID: "u1", At: at(104)},
		},
		templates: []Template{
			{Key: place, N: 2, Clusters: []string{"m2"}},
			{Key: web, UID: "u1", N: 2, Replicas: 3},
		},
		copies: []Copy{{Member: "m2", Key: web, UID: "c2", TemplateUID: "u1", N: 2, Replicas: 3, Managed: true}},
	}
}

var tolerance = Tolerance{InFlight: 30 * time.Second, Late: 5 * time.Second}

func TestChanges(t *testing.T) {
	deleted := Write{Key: web, Delete: true, UID: "u1", Sent: at(40), Done: at(41), Outcome: Acknowledged}
	deletion := Change{Member: "m2", Key: web, Verb: "delete", Code: 200, Epoch: 2, N: -1, UID: "c2", At: at(50)}
	for name, c := range map[string]struct {
		doctor func(*run)
		want   string // empty: nothing is found
	}{
		"right":                    {func(*run) {}, ""},
		"deleted without a reason": {func(r *run) { r.changes = append(r.changes, deletion) }, "nobody has deleted"},
		"deleted with its template": {func(r *run) {
			r.changes, r.writes = append(r.changes, deletion), append(r.writes, deleted)
		}, ""},
		"deleted with a template that was perhaps deleted": {func(r *run) {
			w := deleted
			w.Outcome = Unknown
			r.changes, r.writes = append(r.changes, deletion), append(r.writes, w)
		}, ""},
		"deleted though the deletion was refused": {func(r *run) {
			w := deleted
			w.Outcome = Refused
			r.changes, r.writes = append(r.changes, deletion), append(r.writes, w)
		}, "nobody has deleted"},
		"deleted before it was asked": {func(r *run) {
			w := deleted
			w.Sent = at(51)
			r.changes, r.writes = append(r.changes, deletion), append(r.writes, w)
		}, "nobody has deleted"},
		"deleted because another of that name was": {func(r *run) {
			w := deleted
			w.UID = "u0"
			r.changes, r.writes = append(r.changes, deletion), append(r.writes, w)
		}, "nobody has deleted"},
		"deleted before it was recorded":        {func(r *run) { r.changes[4].At = at(90) }, "no placement of then"},
		"deleted while its record is under way": {func(r *run) { r.changes[4].At = at(97) }, ""},
		"deleted long after it was placed there again": {func(r *run) {
			r.records = append(r.records, Record{Key: web, UID: "u1", Clusters: []string{"m1", "m2"}, At: at(102)})
			r.changes[4].At = at(133)
		}, "no placement of then"},
		"deleted just after it was placed there again": {func(r *run) {
			r.records = append(r.records, Record{Key: web, UID: "u1", Clusters: []string{"m1", "m2"}, At: at(102)})
		}, ""},
		"deleted with another template's record": {func(r *run) { r.records[1].UID = "u0" }, "no placement of then"},
		"a refused deletion":                     {func(r *run) { deletion := deletion; deletion.Code = 409; r.changes = append(r.changes, deletion) }, ""},
		"created where no placement leads": {func(r *run) {
			r.changes = append(r.changes, Change{Member: "m3", Key: web, Verb: "patch", Code: 201, Epoch: 2, N: 2, TemplateUID: "u1", UID: "c3", Version: 30, Marked: true, At: at(20)})
		}, "no placement of then has the cluster"},
		"created again after the placement had gone": {func(r *run) {
			r.changes = append(r.changes, Change{Member: "m1", Key: web, Verb: "patch", Code: 201, Epoch: 2, N: 2, TemplateUID: "u1", UID: "c4", Version: 30, Marked: true, At: at(140)})
		}, "no placement of then has the cluster"},
		"a content that nobody wrote":     {func(r *run) { r.changes[2].N = 9 }, "no client has written"},
		"a content before it was written": {func(r *run) { r.changes[2].At = at(9) }, "no client has written"},
		"a content of another template":   {func(r *run) { r.changes[2].TemplateUID = "u9" }, "no client has written"},
		"an older content after a newer one": {func(r *run) {
			stale := r.changes[0]
			stale.Code, stale.Version, stale.At = 200, 30, at(12)
			r.changes = append(r.changes, stale)
		}, "stale, after"},
		"an older content that the store took before": {func(r *run) {
			early := r.changes[0]
			early.Code, early.Version, early.At = 200, 15, at(12)
			r.changes = append(r.changes, early)
		}, ""},
		"a replaced leader's write": {func(r *run) {
			stale := r.changes[3]
			stale.Epoch, stale.Version = 1, 21
			r.changes = append(r.changes, stale)
		}, "of a leader that had been replaced"},
		"a replaced leader's write in another member": {func(r *run) {
			early := r.changes[2]
			early.Epoch, early.Version = 1, 21
			r.changes = append(r.changes, early)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := right()
			c.doctor(&r)
			found, report := Changes(r.writes, r.records, r.changes, tolerance)
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
			if report.Creations < 2 || report.Deletions < 1 && name != "right" || len(report.Epochs) != 2 {
				t.Errorf("looked at %+v", report)
			}
		})
	}
}

func TestFinal(t *testing.T) {
	for name, c := range map[string]struct {
		doctor func(*run)
		want   string
	}{
		"right": {func(*run) {}, ""},
		"what was perhaps written": {func(r *run) {
			r.templates[1].N, r.templates[1].Replicas = 3, 4
			r.copies[0].N, r.copies[0].Replicas = 3, 4
		}, ""},
		"an acknowledged write is lost":    {func(r *run) { r.templates[1].N = 1; r.copies[0].N = 1 }, "clients were told [n 2 n 3], and the control plane has n 1"},
		"an acknowledged template is lost": {func(r *run) { r.templates, r.copies = r.templates[:1], nil }, "the control plane has absent"},
		"a refused write was made":         {func(r *run) { r.writes[4].Outcome = Refused; r.templates[1].N = 3; r.copies[0].N = 3 }, "has n 3"},
		"a deleted template is there": {func(r *run) {
			r.writes = append(r.writes, Write{Key: web, Delete: true, UID: "u1", Sent: at(200), Done: at(200), Outcome: Acknowledged})
		}, "clients were told [absent]"},
		"a copy outlives its template": {func(r *run) {
			r.writes = append(r.writes, Write{Key: web, Delete: true, UID: "u1", Sent: at(200), Done: at(200), Outcome: Acknowledged})
			r.templates = r.templates[:1]
		}, "has no template and is in [m2]"},
		"a template does not go": {func(r *run) { r.templates[1].Deleting = true }, "still being deleted"},
		"a copy is missing":      {func(r *run) { r.copies = nil }, "missing in m2"},
		"a copy is left":         {func(r *run) { r.copies = append(r.copies, r.copies[0]); r.copies[1].Member = "m1" }, "left where its policy"},
		"an old content":         {func(r *run) { r.copies[0].N = 1 }, "has n 1, want 2"},
		"another's copy":         {func(r *run) { r.copies[0].TemplateUID = "u0" }, "belongs to template u0"},
		"marks are lost":         {func(r *run) { r.copies[0].Managed = false }, "lost its marks"},
		"replicas":               {func(r *run) { r.copies[0].Replicas = 2 }, "2 replicas, want 3"},
		"a divided one in part":  {func(r *run) { divide(r); r.copies[0].Replicas = 1 }, "2 replicas in [m1 m2], want 3"},
		"a divided one":          {divide, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := right()
			c.doctor(&r)
			found := Final(r.writes, r.templates, r.copies)
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func divide(r *run) {
	r.templates[0].Clusters, r.templates[0].Divided = []string{"m1", "m2"}, true
	r.copies[0].Replicas = 2
	r.copies = append(r.copies, Copy{Member: "m1", Key: web, UID: "c1", TemplateUID: "u1", N: 2, Replicas: 1, Managed: true})
}

func TestQuiet(t *testing.T) {
	r := right()
	if found := Quiet(r.changes, at(103)); len(found) != 0 {
		t.Errorf("found %q: what was refused changes nothing", found)
	}
	if found := Quiet(r.changes, at(102)); len(found) != 1 {
		t.Errorf("found %q, want the deletion", found)
	}
}
