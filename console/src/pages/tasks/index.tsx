import { TaskList } from "./page.tsx";
import { TASK_VIEWS } from "./query.ts";

/** Every task that the viewer may see. */
export default function TasksPage() {
  return <TaskList kind="" noun="tasks" views={TASK_VIEWS} />;
}
