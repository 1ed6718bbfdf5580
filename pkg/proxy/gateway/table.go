package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	apirest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// clusterColumn is the position of the CLUSTER column: after the first one.
const clusterColumn = 1

var clusterColumnDefinition = metav1.TableColumnDefinition{
	Name:        "Cluster",
	Type:        "string",
	Description: "Cluster that the object lives in.",
}

// tableMaker makes rows: those that kubectl knows of a built-in kind, name and
// age of any other, with the cluster in both.
type tableMaker struct {
	scheme  *runtime.Scheme
	printer printers.TableGenerator
	custom  func(schema.GroupVersionKind) apirest.TableConvertor // nil where nobody knows
}

var builtinPrinter = sync.OnceValue(func() printers.TableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

func newTableMaker(scheme *runtime.Scheme, custom func(schema.GroupVersionKind) apirest.TableConvertor) *tableMaker {
	return &tableMaker{scheme: scheme, printer: builtinPrinter(), custom: custom}
}

// plainColumns are the columns of a kind that has no printer.
var plainColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
}

// columns describes the cells of a kind's rows.
func (t *tableMaker) columns(k *kind) ([]metav1.TableColumnDefinition, error) {
	if !k.known {
		if table, ok := t.printCustom(k, []byte("{}")); ok {
			return withCluster(table.ColumnDefinitions, clusterColumnDefinition), nil
		}
		return withCluster(plainColumns, clusterColumnDefinition), nil
	}
	obj, err := k.scheme.New(k.gvk)
	if err != nil {
		return nil, fmt.Errorf("no Go type of %s: %w", k.gvk, err)
	}
	table, ok := t.print(obj, false)
	if !ok {
		return withCluster(plainColumns, clusterColumnDefinition), nil
	}
	return withCluster(table.ColumnDefinitions, clusterColumnDefinition), nil
}

// print makes the table of one object; ok is false for a kind without printer.
func (t *tableMaker) print(obj runtime.Object, noHeaders bool) (table *metav1.Table, ok bool) {
	internal, err := t.scheme.UnsafeConvertToVersion(obj, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, false // a kind without an internal version has no printer
	}
	table, err = t.printer.GenerateTable(internal, printers.GenerateOptions{Wide: true, NoHeaders: noHeaders})
	if err != nil {
		return nil, false // no printer is registered for the type
	}
	return table, true
}

// printCustom makes the table of one custom resource, as its definition says.
func (t *tableMaker) printCustom(k *kind, raw []byte) (*metav1.Table, bool) {
	if t.custom == nil || k.encoding != cache.JSON {
		return nil, false
	}
	convertor := t.custom(k.gvk)
	if convertor == nil {
		return nil, false
	}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &obj.Object); err != nil {
		return nil, false
	}
	table, err := convertor.ConvertToTable(context.Background(), obj, &metav1.TableOptions{})
	return table, err == nil
}

// withCluster puts a value at the place of the CLUSTER column.
func withCluster[T any](cells []T, cluster T) []T {
	at := min(clusterColumn, len(cells))
	out := make([]T, 0, len(cells)+1)
	out = append(out, cells[:at]...)
	out = append(out, cluster)
	return append(out, cells[at:]...)
}

// cells makes the cells of one object.
func (t *tableMaker) cells(k *kind, o *cache.Object) ([]any, []metav1.TableRowCondition, error) {
	if k.known {
		if row, ok := t.printed(k, o); ok {
			return withCluster[any](row.Cells, string(o.Cluster)), row.Conditions, nil
		}
		columns, err := t.columns(k)
		if err != nil {
			return nil, nil, err
		}
		if len(columns) > len(plainColumns)+1 {
			return unreadable(o, len(columns)), nil, nil
		}
	} else if table, ok := t.printCustom(k, o.Raw()); ok && len(table.Rows) == 1 {
		return withCluster[any](table.Rows[0].Cells, string(o.Cluster)), nil, nil
	}
	m, err := k.metadata(o)
	if err != nil {
		return nil, nil, err
	}
	return withCluster([]any{m.Name, age(m.CreationTimestamp)}, any(string(o.Cluster))), nil, nil
}

// printed makes the row that kubectl knows. The printers read what a member
// sent: bytes that one of them cannot bear must not end the table of all.
func (t *tableMaker) printed(k *kind, o *cache.Object) (row metav1.TableRow, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			klog.Background().Info("Object cannot be printed", "kind", k.gvk.Kind, "object", o.Key, "cluster", o.Cluster, "reason", r)
			ok = false
		}
	}()
	obj, err := k.decodePrinted(o)
	if err != nil {
		return row, false
	}
	table, ok := t.print(obj, true)
	if !ok || len(table.Rows) != 1 {
		return row, false
	}
	return table.Rows[0], true
}

// unreadable is the row of an object that could not be printed.
func unreadable(o *cache.Object, columns int) []any {
	cells := make([]any, columns)
	for i := range cells {
		cells[i] = "<unknown>"
	}
	cells[0], cells[clusterColumn] = o.Key.Name, string(o.Cluster)
	return cells
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// tableValue makes rows, and tables of one row for single objects.
type tableValue struct {
	kind   *kind
	form   form
	tables *tableMaker
}

func (v tableValue) id() string {
	return fmt.Sprintf("table/%s/%s/%t/%s", v.form.metaVersion.Version, v.form.table.IncludeObject, v.form.table.NoHeaders, v.kind.gvk.Group)
}

// appendRow appends the row of an object with as much of it as was asked for.
func (v tableValue) appendRow(dst []byte, o *cache.Object) ([]byte, error) {
	cells, conditions, err := v.tables.cells(v.kind, o)
	if err != nil {
		return nil, err
	}
	if dst, err = appendMarshal(append(dst, `{"cells":`...), cells); err != nil {
		return nil, err
	}
	return v.appendRowEnd(dst, o, conditions)
}

// appendRowEnd appends what follows the cells.
func (v tableValue) appendRowEnd(dst []byte, o *cache.Object, conditions []metav1.TableRowCondition) (_ []byte, err error) {
	if len(conditions) > 0 {
		if dst, err = appendMarshal(append(dst, `,"conditions":`...), conditions); err != nil {
			return nil, err
		}
	}
	if dst, err = v.appendObject(append(dst, `,"object":`...), o); err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

func (v tableValue) appendObject(dst []byte, o *cache.Object) ([]byte, error) {
	if v.form.table.IncludeObject == metav1.IncludeObject {
		return v.kind.appendJSON(dst, o, false)
	}
	// Only bookmarks have no name; the one that ends the initial events keeps
	// its metadata, which carries the mark.
	if v.form.table.IncludeObject == metav1.IncludeNone {
		if o.Key.Name != "" {
			return append(dst, "null"...), nil
		}
		m, err := v.kind.metadata(o)
		if err != nil {
			return nil, err
		}
		if m.Annotations[metav1.InitialEventsAnnotationKey] == "" {
			return append(dst, "null"...), nil
		}
	}
	return v.kind.appendPartial(dst, o, v.form.metaVersion)
}

func (v tableValue) value(dst []byte, o *cache.Object, item bool) ([]byte, error) {
	if item {
		return v.appendRow(dst, o)
	}
	head, rows, err := v.listHead(listMeta{ResourceVersion: formatRV(o.RV)})
	if err != nil {
		return nil, err
	}
	dst = append(dst, bytes.TrimSuffix(head, []byte("}"))...)
	dst = fmt.Appendf(dst, `,%q:[`, rows)
	if dst, err = v.appendRow(dst, o); err != nil {
		return nil, err
	}
	return append(dst, "]}"...), nil
}

func (v tableValue) header(m listMeta) (*metav1.Table, error) {
	apiVersion, kindName := v.form.metaVersion.WithKind("Table").ToAPIVersionAndKind()
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: kindName, APIVersion: apiVersion}, ListMeta: m}
	if v.form.table.NoHeaders {
		table.ColumnDefinitions = []metav1.TableColumnDefinition{}
		return table, nil
	}
	columns, err := v.tables.columns(v.kind)
	table.ColumnDefinitions = columns
	return table, err
}

// tableHeader is a Table without its rows.
type tableHeader struct {
	metav1.TypeMeta   `json:",inline"`
	Metadata          metav1.ListMeta                `json:"metadata"`
	ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
}

func (v tableValue) listHead(m listMeta) ([]byte, string, error) {
	table, err := v.header(m)
	if err != nil {
		return nil, "", err
	}
	b, err := appendMarshal(nil, tableHeader{TypeMeta: table.TypeMeta, Metadata: m, ColumnDefinitions: table.ColumnDefinitions})
	return b, "rows", err
}
