package adoption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Request says what is to be taken over.
type Request struct {
	ControlPlane *rest.Config
	Clusters     []string
	Namespace    string
	// Names are KIND/NAME; none means everything in the namespace.
	Names  []string
	DryRun bool
	// Wait bounds each phase that waits for the engine.
	Wait time.Duration
	Out  io.Writer
}

// adopting, as the value of the hold on a template, marks an adoption under way.
const adopting = "adopting"

// run is a Request under way.
type run struct {
	Request
	hub     *api
	members []*api
}

// work is one item on its way.
type work struct {
	*item
	plan *adopt.Plan
	err  error
}

// Adopt takes objects over, in place. What is refused is named and left alone;
// the rest is done all the same.
func Adopt(ctx context.Context, req Request) error {
	r := &run{Request: req}
	var err error
	if r.hub, err = connect(ctx, "the control plane", req.ControlPlane); err != nil {
		return err
	}
	for _, cluster := range req.Clusters {
		m, err := member(ctx, req.ControlPlane, cluster)
		if err != nil {
			return err
		}
		r.members = append(r.members, m)
	}
	items, err := r.collect(ctx)
	if err != nil {
		return err
	}
	// Objects of a kind can be read once its definition has been taken over.
	definitions := slices.DeleteFunc(slices.Clone(items), func(i *item) bool { return i.GroupKind() != crdKind })
	all, err := r.takeOver(ctx, definitions)
	if err != nil {
		return err
	}
	items = slices.DeleteFunc(items, func(i *item) bool { return i.GroupKind() == crdKind })
	for _, w := range slices.Clone(all) {
		if w.err != nil {
			continue
		}
		contents, err := r.contents(ctx, w.item)
		if err != nil {
			return err
		}
		items = append(items, contents...)
	}
	rest, err := r.takeOver(ctx, items)
	if err != nil {
		return err
	}
	if all = append(all, rest...); len(all) == 0 {
		r.say("Nothing in %s of %s is left to be taken over.", r.Namespace, strings.Join(r.Clusters, ", "))
		return nil
	}
	return r.sum(all)
}

// takeOver shows what would be done with each item and, unless it is a dry run,
// does it.
func (r *run) takeOver(ctx context.Context, items []*item) ([]*work, error) {
	all := make([]*work, 0, len(items))
	for _, i := range items {
		w := &work{item: i}
		if !i.managed {
			w.err = r.preview(ctx, w)
		}
		all = append(all, w)
		r.show(w)
	}
	if r.DryRun || len(all) == 0 {
		return all, nil
	}
	return all, r.carryOut(ctx, slices.DeleteFunc(slices.Clone(all), func(w *work) bool { return w.managed }))
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...) //nolint:errcheck // progress for people
}

// preview plans one item and shows what the engine would do in each member.
func (r *run) preview(ctx context.Context, w *work) error {
	if err := r.free(ctx, w.item); err != nil {
		return err
	}
	var err error
	if w.plan, err = adopt.Make(w.copies); err != nil {
		return err
	}
	var errs []error
	for n, c := range w.copies {
		m := r.members[slices.IndexFunc(r.members, func(m *api) bool { return m.name == c.Cluster })]
		changes, err := r.tryIn(ctx, m, w, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Cluster, err))
			continue
		}
		if n == 0 {
			r.describe(w)
		}
		for _, change := range changes {
			if secret(w.item) {
				r.say("  %s: %s changes", c.Cluster, change.Path)
				continue
			}
			r.say("  %s: %s", c.Cluster, change)
		}
	}
	return errors.Join(errs...)
}

// secret values are not shown.
func secret(i *item) bool { return i.Group == "" && i.Kind == "Secret" }

// free makes sure that the control plane has no such template yet, unless an
// interrupted adoption has made it.
func (r *run) free(ctx context.Context, i *item) error {
	u, err := r.hub.find(ctx, i.kind, i.namespace, i.name)
	if err != nil || u == nil {
		return err
	}
	if u.GetAnnotations()[marks.Hold] == adopting || isMembers(u) {
		return nil
	}
	return fmt.Errorf("%w: the control plane has a template of this name: annotate it with %s=overwrite to take over what is there as the template says", adopt.ErrRefused, adopt.ConflictAnnotation)
}

// isMembers: what is served is a member's object, not one of the control plane.
func isMembers(u *unstructured.Unstructured) bool { return u.GetLabels()[clusterLabel] != "" }

const clusterLabel = "isthmus.dev/cluster"

// tryIn asks a member what our apply would change.
func (r *run) tryIn(ctx context.Context, m *api, w *work, c adopt.Copy) ([]adopt.Change, error) {
	body, err := w.plan.For(c.Cluster)
	if err != nil {
		return nil, err
	}
	body.SetUID(c.Object.GetUID())
	body.SetResourceVersion(c.Object.GetResourceVersion())
	answer, err := m.resource(w.kind, w.namespace).Apply(ctx, w.name, body, metav1.ApplyOptions{
		FieldManager: marks.Manager, Force: true, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", adopt.ErrRefused, err)
	}
	if err := adopt.Judge(c.Object, answer); err != nil {
		return nil, err
	}
	return adopt.Changes(c.Object, answer), nil
}

// describe says what an item becomes.
func (r *run) describe(w *work) {
	parts := make([]string, 0, len(w.plan.Clusters))
	for _, cluster := range w.plan.Clusters {
		if n, ok := w.plan.Replicas[cluster]; ok {
			cluster = fmt.Sprintf("%s (%d)", cluster, n)
		}
		parts = append(parts, cluster)
	}
	r.say("%s: in %s", w, strings.Join(parts, ", "))
	for _, cluster := range w.plan.Clusters {
		for _, o := range w.plan.Overrides[cluster] {
			r.say("  override for %s: %s %s %s", cluster, o.Operator, o.Path, o.Value.Raw)
		}
	}
}

func (r *run) show(w *work) {
	if w.err != nil {
		r.say("%s: %v", w, w.err)
	}
}

func (r *run) sum(all []*work) error {
	var refused []string
	for _, w := range all {
		if w.err != nil {
			refused = append(refused, w.String())
		}
	}
	what := "taken over"
	if r.DryRun {
		what = "can be taken over (dry run, nothing was changed)"
	}
	r.say("%d of %d objects %s.", len(all)-len(refused), len(all), what)
	if len(refused) > 0 {
		return fmt.Errorf("%w: %s", ErrIncomplete, strings.Join(refused, ", "))
	}
	return nil
}

// carryOut creates policies and templates, and waits for the engine.
func (r *run) carryOut(ctx context.Context, all []*work) error {
	if r.Namespace != "" {
		if err := r.ensureNamespace(ctx); err != nil {
			return err
		}
	}
	for _, w := range all {
		if w.err == nil {
			w.err = r.create(ctx, w)
		}
	}
	if err := r.await(ctx, all, r.placed, r.lift); err != nil {
		return err
	}
	return r.await(ctx, all, applied, func(_ context.Context, w *work) error {
		r.say("%s: taken over", w)
		return nil
	})
}

// ensureNamespace makes the namespace of the templates. It goes to no other
// clusters because of that.
func (r *run) ensureNamespace(ctx context.Context) error {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(r.Namespace)
	ns.SetLabels(map[string]string{skipNamespaceLabel: "true"})
	_, err := r.hub.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Create(ctx, ns, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s in the control plane: %w", r.Namespace, err)
	}
	return nil
}

const skipNamespaceLabel = "namespace.karmada.io/skip-auto-propagation"

// create writes the policies, then the template on hold: the engine decides about
// it, and writes nothing before the decision has been looked at.
func (r *run) create(ctx context.Context, w *work) error {
	propagation, override := w.plan.Policies()
	for _, p := range []runtime.Object{override, propagation} {
		if p == nil {
			continue
		}
		if err := r.write(ctx, p); err != nil {
			return err
		}
	}
	template := w.plan.Template.DeepCopy()
	annotations := template.GetAnnotations()
	annotations[marks.Hold] = adopting
	template.SetAnnotations(annotations)
	create := func() (bool, error) {
		_, err := r.hub.resource(w.kind, w.namespace).Create(ctx, template, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) && rank(w.GroupKind()) == len(order) {
			return false, nil // its definition is not served yet
		}
		return true, err
	}
	err := until(ctx, r.Wait, create)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("template of %s: %w", w, err)
	}
	return nil
}

func (r *run) write(ctx context.Context, policy runtime.Object) error {
	res, u, err := r.hub.policyResource(policy)
	if err != nil {
		return err
	}
	if _, err := res.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
