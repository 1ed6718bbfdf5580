// Package eviction decides which copies leave their clusters because they have
// failed there, and how those that are left behind go.
//
//	policy, health of the copies -> Judge  -> clusters that are not to be used
//	  -> placement -> Begin -> a task for each copy that has moved, recorded
//	tasks, what is left of the old and ready of the new copies -> Settle
//	  -> tasks that go on, and those that have ended
//
// A task is the intent by which an old copy is taken away: none is without a
// place that the copy has moved to. A cluster that was left is not used again
// for the same content, so a template that cannot work does not go round.
package eviction

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

// Task is the record of one copy that is left behind.
type Task = workv1alpha2.GracefulEvictionTask

// What a task says of who has made it, and why.
const (
	ProducerApplication = "ResourceBindingApplicationFailoverController"
	ProducerCluster     = "TaintManager"
	ReasonApplication   = "ApplicationFailure"
	ReasonCluster       = "TaintUntolerated"
)

// DefaultGraceSeconds is the grace period of purgeMode Gracefully.
const DefaultGraceSeconds = 600

const (
	defaultToleration = 300 * time.Second
	defaultGrace      = DefaultGraceSeconds * time.Second
)

// Copy is what is known of a target's copy.
type Copy struct {
	Cluster string
	// Healthy and Unhealthy are both false while nobody can say.
	Healthy, Unhealthy bool
	// Since is when the copy began to be unhealthy, without a break.
	Since time.Time
}

// Judge says which copies have failed, and when time alone will say more. A
// template that is healthy in none of several clusters fails by its own doing
// and stays where it is.
func Judge(a *policyv1alpha1.ApplicationFailoverBehavior, copies []Copy, now time.Time) (failed []string, next time.Time) {
	if a == nil || len(copies) > 1 && !slices.ContainsFunc(copies, func(c Copy) bool { return c.Healthy }) {
		return nil, time.Time{}
	}
	tolerated := seconds(a.DecisionConditions.TolerationSeconds, defaultToleration)
	for _, c := range copies {
		if !c.Unhealthy || c.Since.IsZero() {
			continue
		}
		end := c.Since.Add(tolerated)
		switch {
		case !end.After(now):
			failed = append(failed, c.Cluster)
		case next.IsZero() || end.Before(next):
			next = end
		}
	}
	return failed, next
}

func seconds(s *int32, otherwise time.Duration) time.Duration {
	if s == nil {
		return otherwise
	}
	return time.Duration(*s) * time.Second
}

// Mode is a purge mode by its present name.
func Mode(m policyv1alpha1.PurgeMode) policyv1alpha1.PurgeMode {
	switch m {
	case policyv1alpha1.PurgeImmediately, policyv1alpha1.PurgeDirectly:
		return policyv1alpha1.PurgeDirectly
	case policyv1alpha1.PurgeNever:
		return m
	case policyv1alpha1.PurgeGracefully, policyv1alpha1.PurgeGraciously:
	}
	return policyv1alpha1.PurgeGracefully
}

// Move is a copy that placement has moved out of a cluster.
type Move struct {
	Cluster  string
	Replicas int32
	Message  string
	// State is told to the new copies.
	State map[string]string
	// Before are the clusters that had a copy.
	Before []string
}

// Application is the task for a copy that has failed by itself.
func Application(a *policyv1alpha1.ApplicationFailoverBehavior, m Move, now time.Time) Task {
	t := task(m, Mode(a.PurgeMode), now)
	t.Producer, t.Reason = ProducerApplication, ReasonApplication
	switch t.PurgeMode {
	case policyv1alpha1.PurgeNever:
		t.SuppressDeletion = new(true)
	case policyv1alpha1.PurgeGracefully:
		t.GracePeriodSeconds = new(int32(seconds(a.GracePeriodSeconds, defaultGrace) / time.Second))
	case policyv1alpha1.PurgeDirectly, policyv1alpha1.PurgeImmediately, policyv1alpha1.PurgeGraciously:
	}
	return t
}

// Cluster is the task for a copy whose cluster has failed. Where it would say
// no more than the placement does, there is none.
func Cluster(c *policyv1alpha1.ClusterFailoverBehavior, m Move, now time.Time) (Task, bool) {
	if Mode(c.PurgeMode) != policyv1alpha1.PurgeDirectly && len(m.State) == 0 {
		return Task{}, false
	}
	t := task(m, Mode(c.PurgeMode), now)
	t.Producer, t.Reason = ProducerCluster, ReasonCluster
	if t.PurgeMode == policyv1alpha1.PurgeGracefully {
		t.GracePeriodSeconds = new(int32(0)) // replicas go one for one
	}
	return t, true
}

func task(m Move, mode policyv1alpha1.PurgeMode, now time.Time) Task {
	before := slices.Clone(m.Before)
	slices.Sort(before)
	return Task{
		FromCluster: m.Cluster, PurgeMode: mode, Replicas: new(m.Replicas), Message: m.Message,
		PreservedLabelState: m.State, ClustersBeforeFailover: before, CreationTimestamp: new(metav1.NewTime(now.UTC().Truncate(time.Second))),
	}
}

// Stage is how far a task is.
type Stage int

// Stages of a task.
const (
	// Held copies stay whole.
	Held Stage = iota
	// Yielding copies give up what the others have ready.
	Yielding
	// Going copies go at once.
	Going
	// Ended tasks have nothing left to do.
	Ended
)

// Progress is what is known of a task's end.
type Progress struct {
	// Gone: it is certain that the old copy is not there.
	Gone bool
	// Targets are the copies that the placement asks for.
	Targets []Copy
}

// Settle says how far a task is, and when time alone will change that. No
// targets at all are not healthy ones.
func Settle(t *Task, p Progress, now time.Time) (stage Stage, next time.Time) {
	if p.Gone {
		return Ended, time.Time{}
	}
	if ptr.Deref(t.SuppressDeletion, false) {
		return Held, time.Time{}
	}
	if Mode(t.PurgeMode) == policyv1alpha1.PurgeDirectly {
		if len(p.Targets) == 0 {
			return Held, time.Time{}
		}
		return Going, time.Time{}
	}
	healthy := len(p.Targets) > 0 && !slices.ContainsFunc(p.Targets, func(c Copy) bool { return !c.Healthy })
	if healthy || t.CreationTimestamp == nil || Mode(t.PurgeMode) == policyv1alpha1.PurgeNever {
		return Yielding, time.Time{}
	}
	if end := t.CreationTimestamp.Add(seconds(t.GracePeriodSeconds, defaultGrace)); end.After(now) {
		return Held, end
	}
	return Yielding, time.Time{}
}

// Left is a cluster that a template has left for good, until its content is
// another.
type Left struct {
	Cluster string `json:"cluster"`
	Content string `json:"content"`
	// Labels are told to copies outside of Before.
	Labels map[string]string `json:"labels,omitempty"`
	Before []string          `json:"before,omitempty"`
}

// LabelsFor are the labels that a copy is told in a cluster: later moves have
// the last word.
func LabelsFor(cluster string, left []Left, tasks []Task) map[string]string {
	var out map[string]string
	add := func(before []string, labels map[string]string) {
		if slices.Contains(before, cluster) {
			return
		}
		for k, v := range labels {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	for _, l := range left {
		add(l.Before, l.Labels)
	}
	for i := range tasks {
		add(tasks[i].ClustersBeforeFailover, tasks[i].PreservedLabelState)
	}
	return out
}

// LeftBy is what remains of a task that has ended.
func LeftBy(t *Task, content string) Left {
	l := Left{Cluster: t.FromCluster, Labels: t.PreservedLabelState, Before: t.ClustersBeforeFailover}
	if t.Producer == ProducerApplication {
		l.Content = content
	}
	return l
}

// Remember drops what says nothing any more. With avoid, clusters that were left
// with the same content stay avoided.
func Remember(left []Left, content string, avoid bool, targets []string) (out []Left) {
	for _, l := range left {
		if l.Content != content || !avoid {
			l.Content = ""
		}
		told := len(l.Labels) > 0 && slices.ContainsFunc(targets, func(c string) bool { return !slices.Contains(l.Before, c) })
		if l.Content == "" && !told {
			continue
		}
		out = append(out, l)
	}
	return out
}

// Avoided says whether a cluster was left with this content.
func Avoided(left []Left, content, cluster string) bool {
	return slices.ContainsFunc(left, func(l Left) bool { return l.Cluster == cluster && l.Content == content && content != "" })
}

// Waiting says whether a move is under way whose new copies have still time to
// become healthy: until then no other begins.
func Waiting(tasks []Task, stages map[string]Stage) bool {
	return slices.ContainsFunc(tasks, func(t Task) bool {
		return stages[t.FromCluster] == Held && !ptr.Deref(t.SuppressDeletion, false)
	})
}

// Unreplaced finds a copy that would leave without another coming for it, where
// every copy is the whole workload: that would be a removal, not a move.
func Unreplaced(failed, previous, targets []string) (cluster string, found bool) {
	come := 0
	for _, t := range targets {
		if !slices.Contains(previous, t) {
			come++
		}
	}
	var leave []string
	for _, c := range failed {
		if slices.Contains(previous, c) && !slices.Contains(targets, c) {
			leave = append(leave, c)
		}
	}
	if len(leave) <= come {
		return "", false
	}
	return slices.Max(leave), true
}
