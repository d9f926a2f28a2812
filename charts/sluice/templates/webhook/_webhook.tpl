{{/* The certificate's secret: filled by the webhook itself, or by cert-manager. */}}
{{- define "sluice.webhookSecret" -}}
{{ include "sluice.componentName" (dict "root" . "component" "webhook") }}-tls
{{- end }}

{{- define "sluice.webhookFlags" -}}
{{- $own := .Values.webhook -}}
{{- $name := include "sluice.componentName" (dict "root" . "component" "webhook") -}}
- {{ printf "--namespace=%s" .Release.Namespace | quote }}
- {{ printf "--service=%s" $name | quote }}
- {{ printf "--secret=%s" (include "sluice.webhookSecret" .) | quote }}
- {{ printf "--configuration=%s" $name | quote }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
